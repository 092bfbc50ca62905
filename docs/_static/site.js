// What is wider than its place can be scrolled by the keyboard.
const reachable = () => {
  for (const each of document.querySelectorAll("p, pre, table, .table-wrapper, .output, .output *, .film *")) {
    if (each.scrollWidth > each.clientWidth && ["auto", "scroll"].includes(getComputedStyle(each).overflowX)) each.tabIndex = 0;
  }
};
addEventListener("resize", reachable);

// A long name may go on in the next line behind / . - and _ only, and a text in a table has a width that can be read. A short name,
// and an option with its hyphens, stays whole.
const breakable = () => {
  for (const name of document.querySelectorAll("article code:not(pre *) .pre, article td :is(a, a *):not(:has(*))")) {
    name.classList.toggle("whole", name.textContent.length < 12 || name.textContent.startsWith("-"));
    const parts = name.textContent.split(/(?<=[\p{L}\d][/._-]+)(?=\p{L})/u);
    name.replaceChildren(...parts.flatMap((part) => [document.createElement("wbr"), part]).slice(1));
  }
  for (const cell of document.querySelectorAll("article td")) {
    cell.classList.toggle("words", cell.textContent.length > 16);
    cell.classList.toggle("long", cell.textContent.length > 60);
  }
};

// A film of a notebook without a kernel: one frame at a time, with two buttons and a slider that the keyboard moves.
document.addEventListener("DOMContentLoaded", () => {
  breakable();
  for (const heading of document.querySelectorAll("[role=heading]:not([aria-level])")) heading.setAttribute("aria-level", "2");
  for (const film of document.querySelectorAll(".film")) {
    const frames = [...film.querySelectorAll("section")];
    const make = (tag, more) => Object.assign(document.createElement(tag), more);
    const back = make("button", { type: "button", textContent: "back" });
    const next = make("button", { type: "button", textContent: "next" });
    const slider = make("input", { type: "range", min: 1, max: frames.length, value: 1 });
    slider.setAttribute("aria-label", "frame");
    const controls = make("div", { className: "film-controls" });
    controls.append(back, slider, next);
    film.firstElementChild.after(controls);
    const show = (number) => {
      slider.value = number; // a range keeps it between its ends
      frames.forEach((frame, at) => { frame.hidden = at + 1 !== Number(slider.value); });
      reachable();
    };
    back.onclick = () => show(Number(slider.value) - 1);
    next.onclick = () => show(Number(slider.value) + 1);
    slider.oninput = () => show(slider.value);
    show(1);
  }
  reachable();
});

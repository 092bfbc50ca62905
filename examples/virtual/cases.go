// The cases: what a step sends, and what its answer must contain (see the rules in virtual-cases.json).
package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"
)

// Step is one request of a case. Token is false for a request without one.
type Step struct {
	Ask, At, Path, Queue string
	Headers              map[string]string
	Body, Answer         any
	Status               int
	Token                *bool
}

func filled(value any, values map[string]any) any {
	switch found := value.(type) {
	case []any:
		all := []any{}
		for _, each := range found {
			all = append(all, filled(each, values))
		}
		return all
	case map[string]any:
		all := map[string]any{}
		for name, each := range found {
			all[fmt.Sprint(filled(name, values))] = filled(each, values)
		}
		return all
	case string:
		if known, ok := values[found]; ok {
			return known
		}
		for name, known := range values {
			found = strings.ReplaceAll(found, name, fmt.Sprint(known))
		}
		return found
	}
	return value
}

func differs(expected, found any, values map[string]any, at string) string {
	switch want := expected.(type) {
	case string:
		if strings.HasPrefix(want, "$") {
			values[want] = found
		}
		if want == "*" || strings.HasPrefix(want, "$") {
			return ""
		}
	case []any:
		if all, ok := found.([]any); ok && len(all) == len(want) {
			for n := range want {
				if why := differs(want[n], all[n], values, fmt.Sprintf("%s.%d", at, n)); why != "" {
					return why
				}
			}
			return ""
		}
	case map[string]any:
		if all, ok := found.(map[string]any); ok {
			for name := range want {
				each, there := all[name]
				if !there {
					return at + " has no " + name
				}
				if why := differs(want[name], each, values, at+"."+name); why != "" {
					return why
				}
			}
			return ""
		}
	}
	if reflect.DeepEqual(expected, found) {
		return ""
	}
	return fmt.Sprintf("%s is %v, not %v", at, found, expected)
}

func run(client *Client, steps []Step) string {
	values := map[string]any{"{q}": "check-" + unique()}
	for _, step := range steps {
		if step.Token != nil && step.Status == 401 && client.Token == "" {
			continue
		}
		if step.Queue == "" {
			step.Queue = "{q}"
		}
		queue := fmt.Sprint(filled(step.Queue, values))
		if err := client.look(false); err != nil {
			return err.Error()
		}
		values["$partition"] = json.Number(fmt.Sprint(partition([]byte(queue), client.known.Partitions)))
		step.Path, step.Body = fmt.Sprint(filled(step.Path, values)), filled(step.Body, values)
		where := step.Ask + " " + step.Path
		status, content, err := client.send(step, queue)
		if err != nil {
			return where + ": " + err.Error()
		}
		if status == 0 {
			continue
		}
		if status != step.Status {
			return fmt.Sprintf("%s: the status is %d: %s", where, status, content)
		}
		if step.Answer == nil {
			continue
		}
		answer, err := parsed[any](content)
		if err != nil {
			return where + ": " + err.Error()
		}
		if why := differs(filled(step.Answer, values), answer, values, "answer"); why != "" {
			return where + ": " + why
		}
	}
	for _, end := range []string{"", ".dead"} {
		client.send(Step{Ask: "DELETE"}, fmt.Sprint(values["{q}"])+end)
	}
	return ""
}

// parsed keeps numbers as they are written: an offset can be larger than what a float64 holds.
func parsed[T any](text []byte) (found T, err error) {
	reader := json.NewDecoder(strings.NewReader(string(text)))
	reader.UseNumber()
	return found, reader.Decode(&found)
}

func read[T any](file string) T {
	text, err := os.ReadFile(file)
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	found, err := parsed[T](text)
	if err != nil {
		fmt.Println(file, err)
		os.Exit(2)
	}
	return found
}

func main() {
	failed := 0
	switch {
	case len(os.Args) == 3 && os.Args[1] == "partitions":
		type vector struct {
			Key       string
			Partition map[uint32]uint32
		}
		all := read[struct{ Vectors []vector }](os.Args[2]).Vectors
		for _, each := range all {
			key, _ := hex.DecodeString(each.Key)
			for count, part := range each.Partition {
				if partition(key, count) != part {
					failed++
				}
			}
		}
		fmt.Printf("%d keys, %d differ\n", len(all), failed)
	case len(os.Args) == 4 && os.Args[1] == "check":
		client := &Client{URL: os.Args[2], Token: os.Getenv("KQ_VIRTUAL_TOKEN"), Patience: time.Minute}
		type cases struct {
			Cases []struct {
				Name  string
				Steps []Step
			}
		}
		for _, each := range read[cases](os.Args[3]).Cases {
			if why := run(client, each.Steps); why != "" {
				failed++
				fmt.Printf("✗ %s\n    %s\n", each.Name, why)
			} else {
				fmt.Println("✓", each.Name)
			}
		}
	default:
		fmt.Println("say: check URL CASES.json, or: partitions MURMUR2.json")
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

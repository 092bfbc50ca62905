// A client of virtual queues without dependencies. It knows which node has which queue, and asks it directly.
//
//	client := &Client{URL: "http://127.0.0.1:4711", Token: os.Getenv("KQ_VIRTUAL_TOKEN"), Patience: time.Minute}
//	client.Put("ARS-CHE", []byte("goal"))
//	items, err := client.Claim("ARS-CHE", "scores", 10, 20)
//	err = client.Receipts("ack", "ARS-CHE", "scores", items[0].Receipt)
//
// go run client.go cases.go check URL CASES.json     asks a live node for all cases, as `kq virtual check` does
// go run client.go cases.go partitions MURMUR2.json  compares its partitions with Kafka's
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"
)

func partition(key []byte, partitions uint32) uint32 {
	hash, rest := uint32(0x9747b28c)^uint32(len(key)), key
	for ; len(rest) >= 4; rest = rest[4:] {
		four := (uint32(rest[0]) | uint32(rest[1])<<8 | uint32(rest[2])<<16 | uint32(rest[3])<<24) * 0x5bd1e995
		hash = hash*0x5bd1e995 ^ (four^four>>24)*0x5bd1e995
	}
	for at := range rest {
		hash ^= uint32(rest[at]) << (8 * at)
	}
	if len(rest) > 0 {
		hash *= 0x5bd1e995
	}
	hash = (hash ^ hash>>13) * 0x5bd1e995
	return ((hash ^ hash>>15) & 0x7fffffff) % partitions
}

// Client asks the nodes of one set of virtual queues, for one goroutine. Patience: until a request that no owner answers is given up.
type Client struct {
	URL, Token string
	Patience   time.Duration
	known      partitionMap
}

type partitionMap struct {
	Version    int64
	Partitions uint32
	Owners     map[string]struct{ URL string } // by partition
}

// Item is one piece of work. Data is nil for a record without a value.
type Item struct {
	Receipt   string
	Offset    int64
	Attempt   int
	Data, Key []byte
	Headers   map[string][]byte
}

// Put stores records, all or none. Its key lets a node know a put that is repeated: it is stored once.
func (c *Client) Put(queue string, datas ...[]byte) ([]int64, error) {
	records := []any{}
	for _, data := range datas {
		records = append(records, map[string]any{"data": data})
	}
	var answer struct{ Offsets []int64 }
	err := c.ask(queue, "/records", map[string]any{"records": records}, map[string]string{"Idempotency-Key": unique()}, &answer)
	return answer.Offsets, err
}

// Claim takes up to n items, and waits for the first one for so many seconds.
func (c *Client) Claim(queue, consumer string, n int, wait float64) ([]Item, error) {
	var answer struct{ Items []Item }
	err := c.ask(queue, "/consumers/"+consumer+"/claim", map[string]any{"n": n, "wait": wait}, nil, &answer)
	return answer.Items, err
}

// Receipts says what became of items: ack, release, extend or bury.
func (c *Client) Receipts(verb, queue, consumer string, receipts ...string) error {
	return c.ask(queue, "/consumers/"+consumer+"/"+verb, map[string]any{"receipts": receipts}, nil, nil)
}

func (c *Client) ask(queue, path string, body any, headers map[string]string, answer any) error {
	status, content, err := c.send(Step{Ask: "POST", Path: path, Body: body, Headers: headers}, queue)
	if err == nil && status >= 400 {
		return fmt.Errorf("%d: %s", status, content)
	}
	if err != nil || answer == nil {
		return err
	}
	return json.Unmarshal(content, answer)
}

// send asks the owner until it answers. Status 0: this step cannot be tried here.
func (c *Client) send(step Step, queue string) (int, []byte, error) {
	deadline, why := time.Now().Add(c.Patience), error(nil)
	if err := c.look(false); err != nil {
		return 0, nil, err
	}
	for pause := 50 * time.Millisecond; ; {
		mine, base := c.known.Owners[fmt.Sprint(partition([]byte(queue), c.known.Partitions))].URL, c.URL
		if step.At == "another" {
			others := c.known.urls(mine)
			if len(others) == 0 {
				return 0, nil, nil // one node has all
			}
			base = others[0]
		} else if step.At != "any" {
			base = mine
		}
		if step.At != "any" && base != "" {
			base += "/queues/" + queue
		}
		if base != "" {
			status, content, err := c.once(step, base+step.Path, 90*time.Second) // a long poll takes up to 60
			if err == nil && (status != 409 && status != 503 || status == step.Status || time.Now().After(deadline)) {
				return status, content, nil
			}
			var moved struct{ Map *partitionMap }
			if json.Unmarshal(content, &moved) == nil && moved.Map != nil && moved.Map.Version > c.known.Version {
				c.known = *moved.Map // of a 409: it names the new owner
				continue
			}
			// No answer. A request that may have been done is repeated only if that does no harm: a put with a key.
			if why = err; err != nil && step.Ask != "GET" && step.Headers["Idempotency-Key"] == "" && !errors.Is(err, syscall.ECONNREFUSED) {
				return 0, nil, err
			}
		}
		if time.Now().After(deadline) {
			return 0, nil, fmt.Errorf("no node answered for %s: %v", queue, why)
		}
		time.Sleep(pause)
		if c.look(true); pause < time.Second {
			pause *= 2
		}
	}
}

func (c *Client) once(step Step, url string, patience time.Duration) (int, []byte, error) {
	var body io.Reader
	if step.Body != nil {
		text, _ := json.Marshal(step.Body)
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequest(step.Ask, url, body)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if c.Token != "" && step.Token == nil {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	for name, value := range step.Headers {
		request.Header.Set(name, value)
	}
	answer, err := (&http.Client{Timeout: patience}).Do(request) // a node that is frozen never answers
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	return answer.StatusCode, content, err
}

// look fetches the map, from the first node that answers. If none does, the known one stays.
func (c *Client) look(again bool) (err error) {
	if c.known.Partitions > 0 && !again {
		return nil
	}
	for _, url := range append(c.known.urls(""), c.URL) {
		status, content, failed := c.once(Step{Ask: "GET"}, url+"/map", 5*time.Second)
		found := partitionMap{}
		if err = failed; err == nil && (status >= 400 || json.Unmarshal(content, &found) != nil) {
			err = fmt.Errorf("%d: %s", status, content)
		}
		if err == nil && (found.Version >= c.known.Version || c.known.Partitions == 0) {
			c.known = found
			return nil
		}
	}
	return err
}

// urls are the addresses of all owners but this one.
func (m *partitionMap) urls(without string) (found []string) {
	for _, owner := range m.Owners {
		if owner.URL != "" && owner.URL != without {
			found = append(found, owner.URL)
		}
	}
	return found
}

func unique() string {
	found := make([]byte, 16)
	rand.Read(found)
	return fmt.Sprintf("%x", found)
}

package ctl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/mgmt/socket"
)

// client speaks to the node that serves one data folder.
type client struct {
	folder string
	stale  string // why what the node answered may be old, if it may
	lacks  string // what is missing in its answer, if something is
	wait   time.Duration
	http   *http.Client
}

func newClient(folder string, wait time.Duration) *client {
	return &client{folder: folder, wait: wait, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return socket.Dial(ctx, folder) },
	}}}
}

// path joins segments into the path of a request. Names may hold anything: each is escaped by itself.
func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/api")
	for _, s := range segments {
		b.WriteByte('/')
		switch s {
		case ".", "..": // would be taken for folders
			b.WriteString(strings.ReplaceAll(s, ".", "%2E"))
		default:
			b.WriteString(url.PathEscape(s))
		}
	}
	return b.String()
}

// refusal is the body of an answer that is an error.
type refusal struct {
	Error  string `json:"error"`  // not_found, exists, invalid, refused, unavailable, app_running, app_stopped, internal
	Object string `json:"object"` // what was not found, where the node could tell
	Reason string `json:"reason"`
}

// refused is an error that the node answered.
type refused struct {
	refusal
	status int
	queues []json.RawMessage // that a health check has found
}

// Error gives the node's reason.
func (r *refused) Error() string { return r.Reason }

// do makes one request and decodes the answer into out, if out is not nil.
func (c *client) do(ctx context.Context, method, path string, in, out any) error {
	answer, err := c.ask(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if out == nil {
		return nil
	}
	if text, ok := out.(*string); ok {
		all, err := io.ReadAll(answer.Body)
		*text = string(all)
		return err
	}
	decoder := json.NewDecoder(answer.Body)
	decoder.UseNumber()
	if err := decoder.Decode(out); err != nil {
		return c.unreachable(err)
	}
	return nil
}

// lines makes a request whose answer comes in lines, each of which is heard when it comes.
func (c *client) lines(ctx context.Context, method, path string, in any, hear func(line []byte) error) error {
	answer, err := c.ask(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if err := hear(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return c.unreachable(err)
	}
	return nil
}

// ask makes one request. What it returns is an answer that has to be closed, and no refusal.
func (c *client) ask(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, failf(ExitSoftware, "Error: %v", err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://holdfast"+path, body)
	if err != nil {
		return nil, failf(ExitSoftware, "Error: %v", err)
	}
	request.Header.Set("Holdfast-Wait", strconv.FormatFloat(c.wait.Seconds(), 'f', -1, 64))
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if why := answer.Header.Get("Holdfast-Stale"); why != "" {
		c.stale = why
	}
	if what := answer.Header.Get("Holdfast-Incomplete"); what != "" {
		c.lacks = what
	}
	if answer.StatusCode < 300 {
		return answer, nil
	}
	defer answer.Body.Close()
	r := &refused{status: answer.StatusCode}
	var said struct {
		refusal
		Queues []json.RawMessage
	}
	err = json.NewDecoder(answer.Body).Decode(&said)
	if r.refusal, r.queues = said.refusal, said.Queues; err != nil || r.Reason == "" {
		r.Reason = "the node answered " + answer.Status
	}
	return nil, r
}

// unreachable says why a request came to nothing.
func (c *client) unreachable(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return failf(ExitTemporary, "Error: the node gave no answer in time")
	case errors.Is(err, os.ErrPermission):
		return failf(ExitUnavailable, "Error: no permission to use the data folder %q: run ctl as the user that runs the node", c.folder)
	case errors.Is(err, os.ErrNotExist), isRefused(err):
		return failf(ExitUnavailable, "Error: no node serves the data folder %q. Is it running? --data names the folder of the node", c.folder)
	}
	return failf(ExitUnavailable, "Error: unable to reach the node of %q: %v", c.folder, err)
}

// exitCode gives the code and text for the answer of the node to a command. noneCode is the code where what the command
// names does not exist.
func exitCode(err error, noneCode int) error {
	var r *refused
	if !errors.As(err, &r) {
		return err
	}
	code := ExitSoftware
	switch r.refusal.Error {
	case "not_found":
		code = noneCode
		if r.Object == "user" {
			code = ExitNoUser
		}
	case "invalid":
		code = ExitData
	case "unavailable":
		code = ExitUnavailable
	case "app_running", "app_stopped":
		return failf(ExitUsage, "Error: %s", r.Reason)
	}
	return failf(code, "Error:\n%s", r.Reason)
}

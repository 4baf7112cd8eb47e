package mgmt

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"

	"holdfast/internal/broker"
	"holdfast/internal/config"
	"holdfast/internal/mgmt/socket"
)

// App is the process behind the local socket: what it can be asked for whether or not a node runs in it. Errors are
// *broker.AdminError and *AppError.
type App interface {
	State() AppState
	// Stop stops the node and leaves the process; one that is stopped is no error.
	Stop(ctx context.Context) error
	// Start starts the node; one that runs is no error.
	Start(ctx context.Context) error
	// Reset takes the stopped node out of its cluster and empties its data folder. With force it asks nobody.
	Reset(ctx context.Context, force bool) error
	// Join makes the node a member of the cluster of the node at an address; already: it is one.
	Join(ctx context.Context, addr string) (already bool, err error)
	// Forget takes another node, which must be away, out of the cluster; with offline this node does so alone, where the majority
	// was lost for good.
	Forget(ctx context.Context, name string, offline bool) error
	// ForceBoot has the node go on without the others, after their majority was lost for good; next: with its next start.
	ForceBoot(ctx context.Context) (next bool, err error)
}

// AppState is what a process says of itself.
type AppState struct {
	Node   string `json:"node"`
	State  string `json:"state"` // starting, running, stopping, stopped
	Reason string `json:"reason,omitempty"`
}

// AppError says that a request does not fit to what the process is doing: the node runs, or it does not.
type AppError struct {
	Running bool // it does
	Text    string
}

// Error returns the text shown to the operator.
func (e *AppError) Error() string { return e.Text }

// Door is the local socket of a process and what is served there: requests about the process itself, and, while a node
// runs in it, those about the node.
type Door struct {
	app  App
	own  *Server // answers what is about the process; it has nothing but settings and a log
	node atomic.Pointer[http.Handler]
}

// OpenDoor opens the socket in the data folder, which must be there.
func OpenDoor(s *config.Settings, app App, log *slog.Logger) (*Door, error) {
	l, err := socket.Listen(s.DataDir)
	if err != nil {
		return nil, err
	}
	d := &Door{app: app, own: &Server{options: Options{Settings: s, Logger: log}}}
	d.own.serve(l, d.api())
	return d, nil
}

// Close closes the socket. Requests under way get a moment.
func (d *Door) Close() error { return d.own.Close() }

// attach has the door serve a node's API as well; nil: it no longer does.
func (d *Door) attach(api http.Handler) {
	if api == nil {
		d.node.Store(nil)
		return
	}
	d.node.Store(&api)
}

// api is what the door answers by itself, and the node's API for the rest.
func (d *Door) api() http.Handler {
	rest := &router{other: d.own.answered(d.absent)}
	api := &router{other: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if node := d.node.Load(); node != nil {
			(*node).ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	})}
	// A node that is stopped, or waits for others, is there all the same.
	rest.handle("GET /api/health", d.own.answered(d.own.health))
	for pattern, h := range map[string]handler{
		"GET /api/app":                     d.state,
		"POST /api/app/stop":               d.stop,
		"POST /api/app/start":              d.start,
		"POST /api/app/reset":              d.reset,
		"POST /api/app/force-boot":         d.forceBoot,
		"POST /api/cluster/join":           d.join,
		"DELETE /api/cluster/nodes/{node}": d.forget,
	} {
		api.handle(pattern, d.own.answered(h))
	}
	return api
}

// absent answers what only a running node can.
func (d *Door) absent(http.ResponseWriter, *http.Request) (any, error) {
	s := d.app.State()
	switch text := "the node is " + s.State + reasonOf(s); s.State {
	case "stopped":
		return nil, &AppError{Text: "this command requires the application to be running, and it is stopped" + reasonOf(s) + ". Start it with 'ctl start_app'."}
	default:
		return nil, &broker.AdminError{Kind: broker.Unavailable, Text: text}
	}
}

func reasonOf(s AppState) string {
	if s.Reason == "" {
		return ""
	}
	return " (" + s.Reason + ")"
}

func (d *Door) state(http.ResponseWriter, *http.Request) (any, error) { return d.app.State(), nil }

func (d *Door) stop(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, d.app.Stop(r.Context())
}

func (d *Door) start(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, d.app.Start(r.Context())
}

func (d *Door) reset(_ http.ResponseWriter, r *http.Request) (any, error) {
	force, err := flag(r, "force")
	if err != nil {
		return nil, err
	}
	return nil, d.app.Reset(r.Context(), force)
}

func (d *Door) join(w http.ResponseWriter, r *http.Request) (any, error) {
	var request struct {
		Address string `json:"address"`
	}
	if err := d.own.read(w, r, &request); err != nil {
		return nil, err
	}
	already, err := d.app.Join(r.Context(), request.Address)
	if err != nil {
		return nil, err
	}
	return struct {
		Already bool `json:"already_member"`
	}{already}, nil
}

func (d *Door) forget(_ http.ResponseWriter, r *http.Request) (any, error) {
	offline, err := flag(r, "offline")
	if err != nil {
		return nil, err
	}
	return nil, about("node", d.app.Forget(r.Context(), r.PathValue("node"), offline))
}

func (d *Door) forceBoot(_ http.ResponseWriter, r *http.Request) (any, error) {
	next, err := d.app.ForceBoot(r.Context())
	if err != nil {
		return nil, err
	}
	return struct {
		Next bool `json:"next_boot"`
	}{next}, nil
}

// appRefusal is the word for an AppError in an answer.
func appRefusal(err error) (word string, ok bool) {
	var app *AppError
	if !errors.As(err, &app) {
		return "", false
	}
	if app.Running {
		return "app_running", true
	}
	return "app_stopped", true
}

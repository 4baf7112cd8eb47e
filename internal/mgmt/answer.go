package mgmt

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"holdfast/internal/broker"
)

// largestRequest bounds the body of a request: a message of the largest size, in base64 and JSON, and something over.
func (s *Server) largestRequest() int64 { return int64(s.options.Settings.MaxMessageSize)*3/2 + 1<<20 }

// invalid is the error for a request that makes no sense.
func invalid(text string) error { return &broker.AdminError{Kind: broker.Invalid, Text: text} }

// read decodes the body of a request.
func (s *Server) read(w http.ResponseWriter, r *http.Request, into any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, s.largestRequest()))
	decoder.UseNumber()
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil && err != io.EOF {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return invalid("the request is larger than a message may be")
		}
		return invalid("the request is not what is expected: " + err.Error())
	}
	return nil
}

// flag reads a true or false of the query; absent is false.
func flag(r *http.Request, name string) (bool, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		return false, invalid(name + " must be true or false")
	}
	return on, nil
}

// whole reads a number of the query; absent is 0.
func whole(r *http.Request, name string) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, invalid(name + " must be a whole number")
	}
	return n, nil
}

// handler answers one route: a value that becomes JSON, or an error that becomes an answer. A nil value is an answer
// without content.
type handler func(w http.ResponseWriter, r *http.Request) (any, error)

// notFound is a refusal that says what kind of thing was not found.
type notFound struct {
	error
	object string
}

func (n notFound) Unwrap() error { return n.error }

// about says what kind of thing an error is about, should it turn out not to exist.
func about(object string, err error) error {
	if err == nil {
		return nil
	}
	return notFound{err, object}
}

// Incomplete is an error that comes with an answer: what was asked for was done, or could be told, in part.
type Incomplete struct{ Text string }

// Error says what is missing, and why.
func (i *Incomplete) Error() string { return i.Text }

// Headers between ctl and the node.
const (
	// incompleteHeader says in an answer that something is missing in it, and why.
	incompleteHeader = "Holdfast-Incomplete"
	// waitHeader says in a request how many seconds the client waits for the answer.
	waitHeader = "Holdfast-Wait"
)

// requestWait bounds requests of clients that do not say how long they wait: they wait a minute.
const requestWait = 50 * time.Second

// patience is how long a request may take: a fifth of the time the client waits is left for the answer's way.
func patience(r *http.Request) time.Duration {
	seconds, err := strconv.ParseFloat(r.Header.Get(waitHeader), 64)
	if err != nil || !(seconds > 0 && seconds < 1e6) {
		return requestWait
	}
	return time.Duration(seconds * 0.8 * float64(time.Second))
}

// staleHeader says in an answer that what is listed may be old, and why.
const staleHeader = "Holdfast-Stale"

// answered makes an http.Handler of a handler.
func (s *Server) answered(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience(r))
		defer cancel()
		value, err := h(w, r.WithContext(ctx))
		var part *Incomplete
		if value != nil && errors.As(err, &part) {
			w.Header().Set(incompleteHeader, part.Text)
			err = nil
		}
		if stale := s.options.Stale; stale != nil && r.Method == http.MethodGet {
			if why := stale(); why != "" {
				w.Header().Set(staleHeader, why)
			}
		}
		switch {
		case err != nil:
			s.refuse(w, r, err)
		case value == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			status := http.StatusOK
			if _, failed := value.(failedCheck); failed {
				status = http.StatusServiceUnavailable
			}
			writeJSON(w, status, value)
		}
	})
}

// refuse tells the client what is wrong.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	answer := struct {
		Error  string `json:"error"`
		Object string `json:"object,omitempty"`
		Reason string `json:"reason"`
	}{"internal", "", err.Error()}
	status := http.StatusInternalServerError
	var known *broker.AdminError
	if word, is := appRefusal(err); is {
		answer.Error, status = word, http.StatusConflict
	} else if errors.As(err, &known) {
		switch known.Kind {
		case broker.NotFound:
			answer.Error, status = "not_found", http.StatusNotFound
			var what notFound
			if errors.As(err, &what) {
				answer.Object = what.object
			}
		case broker.Exists:
			answer.Error, status = "exists", http.StatusConflict
		case broker.Invalid:
			answer.Error, status = "invalid", http.StatusBadRequest
		case broker.Rejected:
			answer.Error, status = "refused", http.StatusConflict
		case broker.Unavailable:
			answer.Error, status = "unavailable", http.StatusServiceUnavailable
		}
	} else {
		s.options.Logger.Error("management request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	writeJSON(w, status, answer)
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.Encode(value) // an error means that the client has gone
}

package mgmt

import (
	"encoding/json"
	"net/http"
	"time"

	"holdfast/internal/broker"
)

// redriveLine is a line of the answer to a redrive: how far it is, and in the last one whether it has come to its end.
type redriveLine struct {
	Progress broker.Redriven `json:"progress"`
	Done     bool            `json:"done"`
	Error    string          `json:"error,omitempty"` // why it has ended early
}

// redrive sends dead letters back. It answers with a line now and then, as long as it takes, and ends when nobody listens any more.
func (s *Server) redrive(w http.ResponseWriter, r *http.Request) {
	var in struct {
		First     bool
		Exchange  *string
		Key       *string `json:"routing_key"`
		Reason    string
		From      string
		OlderThan int64 `json:"older_than"` // seconds
		Limit     uint64
		Rate      float64
		DryRun    bool `json:"dry_run"`
	}
	if err := s.read(w, r, &in); err != nil {
		s.refuse(w, r, err)
		return
	}
	if in.OlderThan < 0 {
		s.refuse(w, r, invalid("an age is not below 0"))
		return
	}
	begun := false
	out := json.NewEncoder(w)
	say := func(line redriveLine) {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
		}
		_ = out.Encode(line) // an error means that the client has gone, as the context will say
		_ = http.NewResponseController(w).Flush()
	}
	end, err := s.options.Broker.Redrive(r.Context(), broker.Redrive{
		VHost: r.PathValue("vhost"), Queue: r.PathValue("queue"),
		First: in.First, Exchange: in.Exchange, Key: in.Key, Reason: in.Reason, From: in.From,
		OlderThan: time.Duration(in.OlderThan) * time.Second, Limit: in.Limit, Rate: in.Rate, DryRun: in.DryRun,
	}, func(p broker.Redriven) { say(redriveLine{Progress: p}) })
	if err != nil && !begun && end.Sent == 0 {
		s.refuse(w, r, about("queue", err))
		return
	}
	last := redriveLine{Progress: end, Done: true}
	if err != nil {
		last.Error = err.Error()
	}
	say(last)
}

package mgmt

import (
	"io"
	"net/http"

	"holdfast/internal/metrics"
)

// publicPages are what anyone may ask on the HTTP listeners: nothing here changes anything.
func (s *Server) publicPages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.Handle("GET /metrics", s.options.Metrics)
	mux.Handle("GET /metrics/per-object", metrics.ObjectsHandler(s.options.Objects))
	return mux
}

// healthz says 200 while the node serves everybody, and 503 with the reason while it does not.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := s.options.Broker.Health(); err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, err.Error()+"\n")
		return
	}
	io.WriteString(w, "ok\n")
}

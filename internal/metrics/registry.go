package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Registry holds the collectors of one node.
type Registry struct {
	registry *prometheus.Registry
}

// NewRegistry makes a registry with the collectors of the Go runtime and of the process.
func NewRegistry() *Registry {
	r := &Registry{registry: prometheus.NewRegistry()}
	r.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return r
}

// Serve adds the numbers of the node, which source fetches whenever the page is asked for. It is called once.
func (r *Registry) Serve(source func() Values) { r.registry.MustRegister(collector{source}) }

// Handler serves the aggregated page.
func (r *Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

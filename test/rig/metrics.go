package rig

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// MetricsPage is what the broker serves under /metrics, in Prometheus' text
// format. A broker that has just started may take a moment: it serves its
// clients first.
func (b *Broker) MetricsPage() ([]byte, error) {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get("http://" + b.HTTP + "/metrics")
	for end := time.Now().Add(ReadyWait); err != nil && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		resp, err = client.Get("http://" + b.HTTP + "/metrics")
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// Gauges are the gauges without labels of the metrics page, by name.
func (b *Broker) Gauges() (map[string]float64, error) {
	page, err := b.MetricsPage()
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return nil, fmt.Errorf("the metrics page cannot be read: %w", err)
	}
	all := map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			if g := m.GetGauge(); g != nil && len(m.GetLabel()) == 0 {
				all[name] = g.GetValue()
			}
		}
	}
	return all, nil
}

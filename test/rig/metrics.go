package rig

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// MetricsPage is what the broker serves under /metrics, in Prometheus' text
// format. A broker that has just started may take a moment: it serves its
// clients first.
func (b *Broker) MetricsPage() ([]byte, error) { return b.page("/metrics") }

// page fetches a page that anybody may see.
func (b *Broker) page(path string) ([]byte, error) {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get("http://" + b.HTTP + path)
	for end := time.Now().Add(ReadyWait); err != nil && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		resp, err = client.Get("http://" + b.HTTP + path)
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// Series are the lines of a metrics page: "/metrics", or "/metrics/per-object". The key is the name with its labels, as
// they stand there.
func (b *Broker) Series(path string) (map[string]float64, error) {
	page, err := b.page(path)
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(page)) {
		key, value, is := cutLast(strings.TrimSpace(line), " ")
		if !is || strings.HasPrefix(line, "#") {
			continue
		}
		if all[key], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("the metrics page has the line %q", line)
		}
	}
	return all, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
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

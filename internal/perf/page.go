package perf

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// What a metrics page calls the two counters whose quotient is messages per
// sync.
const (
	metricSyncs  = "rabbitmq_io_sync_ops_total"
	metricStable = "holdfast_log_stable_messages_total"
)

// synced is what a broker's log had done up to one moment.
type synced struct{ messages, syncs float64 }

// synced reads the broker's metrics page, if its address is known.
func (e *env) synced(ctx context.Context) (s synced, err error) {
	if e.o.metrics == "" {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, e.o.metrics, nil)
	if err != nil {
		return s, err
	}
	answer, err := (&http.Client{Timeout: 10 * time.Second}).Do(ask)
	if err != nil {
		return s, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return s, fmt.Errorf("%s answers %s", e.o.metrics, answer.Status)
	}
	return parsePage(answer.Body)
}

// parsePage finds the two counters, which have no labels.
func parsePage(page io.Reader) (s synced, err error) {
	found := 0
	lines := bufio.NewScanner(page)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		var to *float64
		switch name {
		case metricSyncs:
			to = &s.syncs
		case metricStable:
			to = &s.messages
		default:
			continue
		}
		if *to, err = strconv.ParseFloat(strings.TrimSpace(value), 64); err != nil {
			return s, err
		}
		found++
	}
	if err := lines.Err(); err != nil {
		return s, err
	}
	if found < 2 {
		return s, fmt.Errorf("the metrics page lacks %s or %s", metricSyncs, metricStable)
	}
	return s, nil
}

// perSync adds to the report what the log did between two moments.
func (r *Report) perSync(a, b synced, wall float64) {
	if b == (synced{}) || b.syncs <= a.syncs {
		return
	}
	r.figure("messages_per_sync", (b.messages-a.messages)/(b.syncs-a.syncs), "messages made stable by one sync of the disk")
	r.figure("syncs_rate", (b.syncs-a.syncs)/wall, "syncs a second")
}

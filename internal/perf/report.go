package perf

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Report is what a run found. As JSON its names are stable.
type Report struct {
	Scenario string   `json:"scenario"`
	ID       string   `json:"id"`
	Time     string   `json:"time"`
	Broker   string   `json:"broker"` // product and version, as it says
	Args     []string `json:"args"`
	Seconds  float64  `json:"seconds,omitempty"`

	Sent      *Rate `json:"sent,omitempty"`
	Confirmed *Rate `json:"confirmed,omitempty"`
	Nacked    *Rate `json:"nacked,omitempty"`
	Returned  *Rate `json:"returned,omitempty"`
	Received  *Rate `json:"received,omitempty"`

	Latency *Summary `json:"latency_us,omitempty"` // from sending to receiving
	Confirm *Summary `json:"confirm_us,omitempty"` // from sending to the confirm
	Call    *Summary `json:"call_us,omitempty"`    // of a request, where the scenario makes requests

	Costs   *Costs  `json:"costs,omitempty"`
	Disk    *Disk   `json:"disk,omitempty"`
	Figures Figures `json:"figures,omitempty"` // of this scenario alone
	Verdict string  `json:"verdict,omitempty"` // "ok" or "fault", where promises are checked

	Errors []string `json:"errors,omitempty"`
}

// Rate is a number of messages and how many that is in a second.
type Rate struct {
	Total uint64  `json:"total"`
	Rate  float64 `json:"rate"`
}

// Figure is one number of a scenario.
type Figure struct {
	Name  string
	Value float64
	Unit  string
}

// Figures keep their order, and are an object in JSON.
type Figures []Figure

// MarshalJSON writes an object with a member for each figure.
func (f Figures) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i, x := range f {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", x.Name, strconv.FormatFloat(x.Value, 'g', -1, 64))
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

// figure adds a number of this scenario.
func (r *Report) figure(name string, value float64, unit string) {
	r.Figures = append(r.Figures, Figure{name, round(value, 4), unit})
}

func (r *Report) failed(err error) {
	const most = 20
	if err != nil && len(r.Errors) < most {
		r.Errors = append(r.Errors, err.Error())
	}
}

// json writes the report as one line.
func (r *Report) json(w io.Writer) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// table writes the report for people.
func (r *Report) table(w io.Writer) {
	fmt.Fprintf(w, "\n%s %s against %s", r.Scenario, r.ID, r.Broker)
	if r.Seconds > 0 {
		fmt.Fprintf(w, ", %.1f s", r.Seconds)
	}
	fmt.Fprintln(w)
	rate := func(name string, v *Rate) {
		if v != nil {
			fmt.Fprintf(w, "  %-10s %12d messages %12.0f /s\n", name, v.Total, v.Rate)
		}
	}
	rate("sent", r.Sent)
	rate("confirmed", r.Confirmed)
	rate("nacked", r.Nacked)
	rate("returned", r.Returned)
	rate("received", r.Received)
	if r.Latency != nil || r.Confirm != nil || r.Call != nil {
		fmt.Fprintf(w, "  %-10s %10s %10s %10s %10s %10s %10s %10s\n", "us", "min", "p50", "p75", "p95", "p99", "p99.9", "max")
	}
	latency := func(name string, s *Summary) {
		if s != nil {
			fmt.Fprintf(w, "  %-10s %10.0f %10.0f %10.0f %10.0f %10.0f %10.0f %10.0f\n", name, s.Min, s.P50, s.P75, s.P95, s.P99, s.P999, s.Max)
		}
	}
	latency("latency", r.Latency)
	latency("confirm", r.Confirm)
	latency("call", r.Call)
	for _, f := range r.Figures {
		fmt.Fprintf(w, "  %-30s %14s %s\n", f.Name, number(f.Value), f.Unit)
	}
	if r.Disk != nil {
		fmt.Fprintf(w, "  disk: a 4 KiB overwrite with fdatasync takes %.0f us (p50), %.0f us (p99), %.0f /s\n", r.Disk.P50, r.Disk.P99, r.Disk.Rate)
	}
	r.costs(w)
	for _, e := range r.Errors {
		fmt.Fprintf(w, "  error: %s\n", e)
	}
	if r.Verdict != "" {
		fmt.Fprintf(w, "  verdict: %s\n", r.Verdict)
	}
}

func (r *Report) costs(w io.Writer) {
	c := r.Costs
	if c == nil {
		return
	}
	each := func(us float64) string {
		if us == 0 {
			return ""
		}
		return fmt.Sprintf(", %.2f us a message", us)
	}
	fmt.Fprintf(w, "  client: %.2f cores%s\n", c.ClientCores, each(c.ClientMicro))
	if b := c.Broker; b != nil {
		fmt.Fprintf(w, "  broker: %.2f cores%s, %.0f MiB resident (most %.0f, anonymous %.0f), %.0f MiB written\n",
			b.Cores, each(b.Micro), b.ResidentMB, b.PeakMB, b.AnonymousMB, b.WrittenMB)
		fmt.Fprintf(w, "  other work on this machine: %.2f cores\n", b.OtherCores)
	}
}

// number is short and still exact enough.
func number(v float64) string {
	switch {
	case v == math.Trunc(v) || math.Abs(v) >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case math.Abs(v) >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func round(v float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}

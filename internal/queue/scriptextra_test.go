package queue

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// parseRare parses a word of a command that has to do with settings.
func parseRare(c *Command, w string) bool {
	name, value, _ := strings.Cut(w, "=")
	n, err := strconv.ParseUint(value, 10, 64)
	switch {
	case name == "heard":
		c.own()
		c.Terms.Heard = n
		return err == nil
	case name == "since":
		c.Last = n * 1e9
		return err == nil
	case name == "timeout":
		c.own()
		c.Terms.Timeout = n * 1e6
		return err == nil
	case name == "key":
		c.own()
		copy(c.Terms.Key[:], value)
		return true
	case name == "screen": // exchange/key/ms/keys; ms: - is as long as there is room
		f := strings.Split(value, "/")
		c.own()
		c.Terms.Screen = &Screen{Keys: 1000}
		c.Terms.Screen.Exchange, err = strconv.ParseUint(f[0], 10, 64)
		copy(c.Terms.Screen.Key[:], f[1])
		if len(f) > 2 && f[2] != "-" {
			n, err = strconv.ParseUint(f[2], 10, 64)
			c.Terms.Screen.Window = Most(n)
		}
		if len(f) > 3 && err == nil {
			c.Terms.Screen.Keys, err = strconv.ParseUint(f[3], 10, 64)
		}
		return err == nil
	case name == "sequence":
		c.own()
		c.Terms.Sequence = Most(n)
		return err == nil
	case name == "delay":
		c.own()
		c.Terms.Delay = n * 1e6
		return err == nil
	case name == "ttl" && c.Kind != Set:
		c.own()
		c.Terms.TTL = Most(n)
		return err == nil
	}
	return c.Kind == Set && parseSetting(c.Terms.Set, name, value)
}

func parseSetting(s *Settings, name, value string) bool {
	words := map[string]func(){
		"forward=":              func() { s.Forward = true },
		"paused=":               func() { s.Paused = true },
		"backoff=":              func() { s.Backoff = true },
		"deduplicate=header":    func() { s.Deduplicate = HeaderKey },
		"deduplicate=id":        func() { s.Deduplicate = MessageIDKey },
		"deduplicate=publisher": func() { s.Deduplicate = PublisherKey },
		"retry=failed":          func() { s.Retry = RetryFailed },
		"retry=returned":        func() { s.Retry = RetryReturned },
		"retry=all":             func() { s.Retry = RetryAll },
		"single-active=":        func() { s.SingleActive = true },
		"overflow=drop-head":    func() { s.Overflow = OverflowDropHead },
		"overflow=reject":       func() { s.Overflow = OverflowReject },
		"overflow=reject-dlx":   func() { s.Overflow = OverflowRejectDLX },
		"dead-letter=once":      func() { s.DeadLetter = DeadLetterOnce },
		"dead-letter=held":      func() { s.DeadLetter = DeadLetterHeld },
	}
	if f := words[name+"="+value]; f != nil {
		f()
		return true
	}
	n, err := strconv.ParseUint(value, 10, 64)
	switch name {
	case "max-length":
		s.MaxLength = Most(n)
	case "min":
		s.RetryMin = n
	case "max":
		s.RetryMax = n
	case "window":
		s.Window = Most(n)
	case "window-bytes":
		s.WindowBytes = n
	case "max-bytes":
		s.MaxBytes = Most(n)
	case "held-most-bytes":
		s.HeldMostBytes = Most(n)
	case "delivery-limit":
		s.DeliveryLimit = Most(n)
	case "ttl":
		s.TTL = Most(n)
	case "held-most":
		s.HeldMost = Most(n)
	default:
		return false
	}
	return err == nil
}

func printRareEffect(s *strings.Builder, e *Effect) {
	switch e.Kind {
	case Overflowed:
		fmt.Fprintf(s, " s%d: the last %d, %v: %v", e.Session, e.Count, e.Numbers(), e.Reason)
	case Uncommitted:
		fmt.Fprintf(s, " s%d: %v", e.Session, e.Reason)
	case TimedOut:
		fmt.Fprintf(s, " c%d: %d", e.Consumer, e.Count)
	case Dead:
		fmt.Fprintf(s, " %v as %v: %v at %ds", e.Numbers(), ids(e.Delivery, e.Delivery+e.Numbers().Len()-1), e.Reason, e.Left)
		if e.Acquired > 0 {
			fmt.Fprintf(s, " count=%d acquired=%d", e.DeliveryCount, e.Acquired)
		}
		if e.Transient {
			s.WriteString(" transient")
		}
		if len(e.Chunks) > 0 {
			fmt.Fprintf(s, " chunks=%v", e.Chunks)
		}
	}
}

// printRareState prints what few machines have.
func printRareState(out *strings.Builder, m *Machine) {
	for _, s := range m.sessions {
		for _, t := range s.under {
			fmt.Fprintf(out, "s%d in transaction %d:", s.id, t.key)
			for i := range t.blocks {
				fmt.Fprintf(out, " %v", Numbers{t.blocks[i].first, t.blocks[i].last})
			}
			fmt.Fprintf(out, ", %d settlements\n", len(t.settles))
		}
	}
	x := m.extra
	if x == nil {
		return
	}
	x.waiting.runs(func(t int64, r run) {
		fmt.Fprintf(out, "delayed until %v: %v\n", time.Duration(t*1e6), Numbers{r.first, r.last})
	})
	x.deadlines.all(func(r run) {
		fmt.Fprintf(out, "until %v: %v\n", time.Duration(r.attr), Numbers{r.first, r.last})
	})
	if t, ok := m.NextDeadline(); ok {
		fmt.Fprintf(out, "next at %v\n", time.Duration(t))
	}
	if n, bytes := m.Keys(); n > 0 {
		fmt.Fprintf(out, "%d keys of %d bytes\n", n, bytes)
	}
	for p := x.keys.silent; p != nil; p = p.next {
		fmt.Fprintf(out, "publisher %s: below %d", strings.TrimRight(string(p.key[:]), "\x00"), p.below)
		for _, r := range p.ranges {
			fmt.Fprintf(out, ", %v", ids(r.First, r.Last))
		}
		for _, r := range p.passing {
			fmt.Fprintf(out, ", transient %v", ids(r.First, r.Last))
		}
		fmt.Fprintln(out)
	}
	for _, s := range x.screens {
		fmt.Fprintf(out, "through exchange %d:", s.exchange)
		s.keys.all(func(p *seen) {
			fmt.Fprintf(out, " %s", strings.TrimRight(string(p.key[:]), "\x00"))
			if p.end != 0 {
				fmt.Fprintf(out, " until %v", time.Duration(p.end*1e6))
			}
		})
		fmt.Fprintln(out)
	}
	if x.sized() {
		fmt.Fprintf(out, "%d bytes ready, %d dead", x.readyBytes, x.dead.bytes)
		if r := m.Unweighed(nil); len(r) > 0 {
			fmt.Fprintf(out, ", not weighed %v", r)
		}
		fmt.Fprintln(out)
	}
	x.dead.all(func(d deadRun) {
		fmt.Fprintf(out, "dead %v as %v: %v\n", Numbers{d.first, d.last}, ids(d.id, d.lastID()), d.reason)
	})
}

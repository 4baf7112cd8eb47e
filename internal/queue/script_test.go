package queue

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// The scripts in testdata/script tell what a queue does as text. Directives:
//
//	queue   begins a new queue with session 1 open
//	do      each line is an entry; its commands are separated by ";". A command is its kind and then
//	        what it needs: cN a consumer, sN a session (1 if not said), xN a count, N or N-M ids or numbers,
//	        L/N a number in lane L, name=N, and words for flags and settlements
//	state   the whole state
//	who     the sessions, and their consumers, as a new leader is told
//	again   each line cN or cN above=N: what Redeliver gives; nothing changes by it
//	redead  what Redead gives
//	restart snapshot, restore, go on
//
// Entry N is at time N seconds.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		var m *Machine
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			switch d.Cmd {
			case "queue":
				m = New()
				m.Apply(&Entry{Index: 1, Time: 1e9, Commands: []Command{{Kind: SessionOpen, Session: 1}}}, &Effects{})
			case "do":
				for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
					fmt.Fprintf(&out, "%s\n", line)
					fx := &Effects{}
					e := &Entry{Index: m.Applied() + 1, Time: int64(m.Applied()+1) * 1e9}
					if d.HasArg("ms") {
						d.ScanArgs(t, "ms", &e.Time)
						e.Time *= 1e6
					}
					for _, c := range strings.Split(line, ";") {
						e.Commands = append(e.Commands, parseCommand(t, c))
					}
					m.Apply(e, fx)
					for i := range fx.List {
						fmt.Fprintf(&out, "    %s\n", printEffect(&fx.List[i]))
					}
					if err := m.Check(); err != nil {
						t.Fatalf("%s: %v", line, err)
					}
				}
			case "state":
				printState(&out, m)
			case "who":
				printWho(&out, m)
			case "again":
				before := m.AppendSnapshot(nil)
				for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
					fmt.Fprintf(&out, "%s\n", line)
					var c, above uint64
					if _, err := fmt.Sscanf(line+" above=0", "c%d above=%d", &c, &above); err != nil {
						t.Fatalf("%s: %v", line, err)
					}
					fx := &Effects{}
					m.Redeliver(ConsumerID(c), above, fx)
					for i := range fx.List {
						fmt.Fprintf(&out, "    %s\n", printEffect(&fx.List[i]))
					}
				}
				if !bytes.Equal(before, m.AppendSnapshot(nil)) {
					t.Fatal("the state has changed")
				}
			case "redead":
				fx := &Effects{}
				m.Redead(fx)
				for i := range fx.List {
					fmt.Fprintf(&out, "%s\n", printEffect(&fx.List[i]))
				}
			case "restart":
				m = restored(t, m)
			default:
				d.Fatalf(t, "unknown directive")
			}
			return out.String()
		})
	})
}

func parseCommand(t *testing.T, text string) Command {
	words := strings.Fields(text)
	c := Command{Session: 1}
	for k := Configure; k <= lastKind; k++ {
		if k.String() == words[0] {
			c.Kind = k
		}
	}
	switch c.Kind {
	case 0:
		t.Fatalf("no such command: %q", text)
	case Attach:
		c.Credit = Unlimited
	case Enqueue:
		c.Count, c.Persistent = 1, true
	case Chunk:
		c.Count = 1
	case Set:
		c.Terms = &Terms{Set: &Settings{}}
	}
	for _, w := range words[1:] {
		if !parseWord(&c, w) {
			t.Fatalf("what is %q in %q?", w, text)
		}
	}
	return c
}

func parseWord(c *Command, w string) bool {
	flags := map[string]*bool{
		"no-ack": &c.NoAck, "exclusive": &c.Exclusive, "wake": &c.Wake, "getter": &c.Getter, "drain": &c.Drain,
		"blameless": &c.Blameless, "clean": &c.Clean, "auto-delete": &c.AutoDelete,
	}
	if f := flags[w]; f != nil {
		*f = true
		if c.Kind == Set && w == "auto-delete" {
			c.AutoDelete, c.Terms.Set.AutoDelete = false, true
		}
		return true
	}
	if parseRare(c, w) {
		return true
	}
	switch w {
	case "transient":
		c.Persistent = false
		return true
	case "all":
		c.First, c.Last = 0, ^uint64(0)
		return true
	}
	for how := Ack; how <= Discard; how++ {
		if w == how.String() {
			c.How = how
			return true
		}
	}
	if name, value, ok := strings.Cut(w, "="); ok {
		n, err := strconv.ParseUint(value, 10, 64)
		switch name {
		case "prefetch":
			c.Prefetch = uint32(n)
		case "credit":
			c.Credit = uint32(n)
		case "lane":
			c.Lane = uint8(n)
		case "seq":
			c.Seq = n
		case "epoch":
			c.Epoch = n
		case "chunks":
			c.Chunks = uint32(n)
		case "upload":
			c.Upload = n
		case "node":
			c.Node = n
		case "incarnation":
			c.Incarnation = n
		case "outer":
			c.Outer = n
		case "to":
			c.Last = n
		case "tx", "parts":
			c.own()
			if c.Terms.Parts = n; name == "tx" {
				c.Terms.Parts, c.Terms.Tx = 0, uint32(n)
			}
		case "bytes":
			c.Bytes = n
		case "priority":
			c.Priority, c.Terms = int32(n), &Terms{Ranked: true}
		default:
			return false
		}
		return err == nil
	}
	if n, err := strconv.ParseUint(w[1:], 10, 64); err == nil && strings.ContainsAny(w[:1], "csx") {
		switch w[0] {
		case 'c':
			c.Consumer = ConsumerID(n)
		case 's':
			c.Session = SessionID(n)
		case 'x':
			c.Count = uint32(n)
		}
		return true
	}
	lane := uint64(0)
	if l, rest, ok := strings.Cut(w, "/"); ok {
		lane, _ = strconv.ParseUint(l, 10, 8)
		w = rest
	}
	first, last, ok := strings.Cut(w, "-")
	if !ok {
		last = first
	}
	a, err := strconv.ParseUint(first, 10, 58)
	b, err2 := strconv.ParseUint(last, 10, 58)
	c.First, c.Last = uint64(MakeNumber(uint8(lane), a)), uint64(MakeNumber(uint8(lane), b))
	return err == nil && err2 == nil
}

func printEffect(e *Effect) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%v", e.Kind)
	switch e.Kind {
	case Deliver:
		fmt.Fprintf(&s, " c%d: %v as %v", e.Consumer, e.Numbers(), ids(e.Delivery, e.Delivery+uint64(e.Last-e.First)))
		if e.Redelivered {
			s.WriteString(" redelivered")
		}
		if e.Acquired > 0 {
			fmt.Fprintf(&s, " count=%d acquired=%d", e.DeliveryCount, e.Acquired)
		}
		if e.NoAck {
			s.WriteString(" no-ack")
		}
		if e.Transient {
			s.WriteString(" transient")
		}
		if e.Left > 0 {
			fmt.Fprintf(&s, " left=%d", e.Left)
		}
		if len(e.Chunks) > 0 {
			fmt.Fprintf(&s, " chunks=%v", e.Chunks)
		}
	case Released:
		fmt.Fprintf(&s, " %v: %v", e.Numbers(), e.Reason)
	case Refused:
		fmt.Fprintf(&s, " c%d: %v", e.Consumer, e.Reason)
	case Drained:
		fmt.Fprintf(&s, " c%d: %d", e.Consumer, e.Count)
	case Purged, Recovered:
		fmt.Fprintf(&s, ": %d", e.Count)
	case EpochOpened:
		fmt.Fprintf(&s, " s%d after %d", e.Session, e.Count)
		if e.Reason != 0 {
			fmt.Fprintf(&s, ": %v", e.Reason)
		}
	case Unused:
	case Overflowed, Dead, TimedOut, Uncommitted:
		printRareEffect(&s, e)
	default:
		fmt.Fprintf(&s, " c%d", e.Consumer)
	}
	return s.String()
}

func ids(first, last uint64) string { return Numbers{Number(first), Number(last)}.String() }

func printWho(out *strings.Builder, m *Machine) {
	m.Sessions(func(s SessionInfo) {
		fmt.Fprintf(out, "s%d", s.ID)
		if s.Node != 0 {
			fmt.Fprintf(out, " of node %d, incarnation %d", s.Node, s.Incarnation)
		}
		if s.Suspect {
			out.WriteString(", suspect")
		}
		if s.Epoch > 0 {
			fmt.Fprintf(out, ", epoch %d", s.Epoch)
		}
		if s.Epoch > 0 || s.Last > 0 {
			fmt.Fprintf(out, ", last %d, closed %d", s.Last, s.Closed)
		}
		m.Refused(s.ID, func(r Range) { fmt.Fprintf(out, ", refused %v", ids(r.First, r.Last)) })
		fmt.Fprintln(out)
		m.ConsumersOf(s.ID, func(c ConsumerRef) {
			fmt.Fprintf(out, "    c%d", c.ID)
			if c.Getter {
				out.WriteString(" getter")
			}
			if c.Cancelled {
				out.WriteString(" cancelled")
			}
			fmt.Fprintf(out, " is its %d, %d delivered, %d held", c.Outer, c.Delivered, c.Held)
			if c.Timeout > 0 {
				fmt.Fprintf(out, ", for %v at most", time.Duration(c.Timeout))
			}
			fmt.Fprintln(out)
		})
	})
	fmt.Fprintf(out, "last consumer c%d\n", m.LastConsumer())
}

func printState(out *strings.Builder, m *Machine) {
	x := m.Explain()
	fmt.Fprintf(out, "%d ready, %d unacked, %d consumers (%s)\n", x.Ready, x.Unacked, m.Consumers(), x.Reason())
	if x.OldestUnacked > 0 {
		fmt.Fprintf(out, "oldest unacked since %ds\n", x.OldestUnacked/1e9)
	}
	for i := range m.lanes {
		m.lanes[i].runs.all(func(r run) {
			fmt.Fprintf(out, "ready %v", Numbers{r.first, r.last})
			if r.attr.is(flagTransient) {
				fmt.Fprint(out, " transient")
			}
			if r.attr.is(flagRedelivered) {
				fmt.Fprintf(out, " redelivered count=%d acquired=%d", r.attr.deliveryCount(), r.attr.acquired())
			}
			fmt.Fprintln(out)
		})
	}
	printRareState(out, m)
	for i, c := range m.consumers {
		fmt.Fprintf(out, "c%d %v", c.id, x.Consumers[i].Standing)
		if c.credit != Unlimited {
			fmt.Fprintf(out, " credit=%d", c.credit)
		}
		c.held.runs(func(r heldRun) {
			fmt.Fprintf(out, ", holds %v as %v", Numbers{r.first.number, r.lastNumber()}, ids(r.id, r.lastID()))
		})
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "live %v\n", m.Live(nil))
}

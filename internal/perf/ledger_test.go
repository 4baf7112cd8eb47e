package perf

import (
	"strings"
	"testing"
)

// What a ledger finds in a few deliveries.
func TestLedger(t *testing.T) {
	plain := func(n uint64) delivery { return delivery{id: messageID(1, n)} }
	marked := func(n uint64) delivery { return delivery{id: messageID(1, n), redelivered: true} }
	for name, c := range map[string]struct {
		again   []uint64
		first   []delivery // on one connection
		second  []delivery // on another
		verdict string
		example string
	}{
		"all is well":                      {nil, []delivery{plain(0), plain(1), plain(2)}, nil, "ok", ""},
		"spread over two":                  {nil, []delivery{plain(0), plain(2)}, []delivery{plain(1)}, "ok", ""},
		"one is lost":                      {nil, []delivery{plain(0), plain(2)}, nil, fault, "confirmed and never delivered: producer 1, number 1"},
		"twice on one":                     {nil, []delivery{plain(0), plain(1), plain(1), plain(2)}, nil, fault, "not marked"},
		"twice on two":                     {nil, []delivery{plain(0), plain(1), plain(2)}, []delivery{plain(1)}, fault, "not marked"},
		"twice and marked":                 {nil, []delivery{plain(0), plain(1), plain(2)}, []delivery{marked(0), marked(1)}, "ok", ""},
		"marked before the other is known": {nil, []delivery{marked(0), plain(1), plain(2)}, []delivery{plain(0)}, "ok", ""},
		"swapped":                          {nil, []delivery{plain(0), plain(2), plain(1)}, nil, fault, "number 1 of producer 1 came after number 2"},
		"published twice":                  {[]uint64{1}, []delivery{plain(0), plain(1), plain(2), plain(1)}, nil, "ok", ""},
		"published twice and late":         {[]uint64{0}, []delivery{plain(1), plain(2), plain(0)}, nil, "ok", ""},
		"marked and late":                  {nil, []delivery{plain(1), plain(2), marked(0)}, nil, "ok", ""},
		"nobody's":                         {nil, []delivery{plain(0), plain(1), plain(2), plain(3)}, nil, fault, "nobody published"},
		"of no producer":                   {nil, []delivery{plain(0), plain(1), plain(2), {id: messageID(9, 0)}}, nil, fault, "nobody published"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(2)
			for n := range uint64(3) {
				l.confirm(1, l.publish(1), int64(n+1))
			}
			for _, n := range c.again {
				l.accounts[1].again.set(n)
			}
			l.deliver(c.first, make(order, 2))
			l.deliver(c.second, make(order, 2))
			var r Report
			l.verdict(&r)
			if text := strings.Join(r.Errors, "; "); r.Verdict != c.verdict || !strings.Contains(text, c.example) || (c.example == "") != (text == "") {
				t.Errorf("verdict %q: %s\n%v", r.Verdict, text, r.Figures)
			}
		})
	}
}

// Nothing is missing that was not confirmed.
func TestLedgerWantsOnlyWhatIsConfirmed(t *testing.T) {
	l := newLedger(1)
	l.publish(0)
	l.confirm(0, l.publish(0), 1)
	l.confirm(0, 1, 2)
	if confirmed, missing, _ := l.state(); confirmed != 1 || missing != 1 {
		t.Fatalf("confirmed %d, missing %d", confirmed, missing)
	}
	l.deliver([]delivery{{id: 1}}, make(order, 1))
	if _, missing, _ := l.state(); missing != 0 {
		t.Fatalf("missing %d", missing)
	}
}

package main

import (
	"strings"
	"testing"
	"time"
)

// Each promise that is broken is noticed, and none that is kept.
func TestJournalFindsFaults(t *testing.T) {
	const long = 3 * time.Second
	type history struct {
		messages []*message // numbers 1, 2, 3 of one publisher: persistent, confirmed
		j        *journal
	}
	for name, c := range map[string]struct {
		do    func(h history)
		there string // numbers found after the restart, in order
		fault string // part of its text; empty: none
	}{
		"all there":            {func(h history) {}, "123", ""},
		"lost":                 {func(h history) {}, "13", "lost"},
		"unconfirmed lost":     {func(h history) { h.messages[1].confirmed = time.Time{} }, "13", ""},
		"transient lost":       {func(h history) { h.messages[1].persistent = false }, "13", ""},
		"transient survives":   {func(h history) { h.messages[1].persistent = false }, "123", "transient"},
		"twice":                {func(h history) {}, "1223", "twice"},
		"out of order":         {func(h history) {}, "132", "behind number 3"},
		"acked long ago":       {func(h history) { h.messages[0].settled = time.Now().Add(-long) }, "123", "settled"},
		"acked just now":       {func(h history) { h.j.settle(h.messages[0], "acked") }, "123", ""},
		"acked and gone":       {func(h history) { h.j.settle(h.messages[0], "acked") }, "23", ""},
		"purged long ago":      {func(h history) { h.messages[0].over = time.Now().Add(-long) }, "123", "purged"},
		"purged and gone":      {func(h history) { h.j.ended(h.j.before(), "purged", true) }, "", ""},
		"purged, but seen":     {func(h history) { h.messages[0].seen = 1; h.j.ended(h.j.before(), "purged", true) }, "1", ""},
		"purge without answer": {func(h history) { h.j.unanswered("purged") }, "3", ""},
		"sent during a purge":  {func(h history) { h.j.ended(nil, "purged", true) }, "", ""},
		"deleted long ago":     {func(h history) { h.messages[2].over = time.Now().Add(-long) }, "123", "deleted"},
		"seen, no flag":        {func(h history) { h.j.delivered("q/p/1", false, nil); h.j.delivered("q/p/1", false, nil) }, "123", "without the redelivered flag"},
		"seen, flag":           {func(h history) { h.j.delivered("q/p/1", false, nil); h.j.delivered("q/p/1", true, nil) }, "123", ""},
		"never sent":           {func(h history) { h.j.delivered("q/p/9", false, nil) }, "123", "never sent"},
		"delivered out of order": {func(h history) {
			l := map[string]int{}
			h.j.delivered("q/p/2", false, l)
			h.j.delivered("q/p/1", false, l)
		}, "123", "after number 2"},
		"delivered after an ack": {func(h history) {
			h.j.delivered("q/p/1", false, map[string]int{})
			h.j.settle(h.messages[0], "acked")
			h.j.delivered("q/p/1", true, map[string]int{})
		}, "23", "after it was settled"},
		"delivered after a purge": {func(h history) {
			h.messages[0].over = time.Now().Add(-long)
			h.j.delivered("q/p/1", false, map[string]int{})
		}, "23", "purged or deleted"},
		"a body that is not whole": {func(h history) { h.j.checkBody(h.messages[1], body("q/p/2", 99)) }, "123", "body"},
		"a body that is whole":     {func(h history) { h.j.checkBody(h.messages[1], body("q/p/2", 100)) }, "123", ""},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal("q")
			h := history{j: j}
			for seq := 1; seq <= 3; seq++ {
				m := j.sent("p", seq, 100, true)
				j.confirm(m)
				h.messages = append(h.messages, m)
			}
			c.do(h)
			var ids []string
			for _, n := range c.there {
				ids = append(ids, "q/p/"+string(n))
			}
			j.check(ids, time.Now())
			got := strings.Join(j.takeFaults(), "; ")
			if c.fault == "" && got != "" || !strings.Contains(got, c.fault) {
				t.Errorf("faults %q, wanted %q", got, c.fault)
			}
		})
	}
}

// What was found gone stays gone: a later return is a fault.
func TestJournalRemembersWhatIsGone(t *testing.T) {
	j := newJournal("q")
	m := j.sent("p", 1, 0, true)
	j.check(nil, time.Now()) // it was never confirmed: nothing wrong
	j.delivered(m.id, false, nil)
	if len(j.takeFaults()) != 1 {
		t.Errorf("faults: %q", j.takeFaults())
	}
}

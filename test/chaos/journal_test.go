package main

import (
	"strings"
	"testing"
	"time"
)

// The audit notices everything that must not be.
func TestTheAuditNotices(t *testing.T) {
	for _, c := range []struct {
		what, says string
		do         func(j *journal, r *reader, p func(n int) *publish)
	}{
		{"a confirmed message that never comes", "lost", func(j *journal, r *reader, p func(int) *publish) {
			j.answer(p(1), acked)
		}},
		{"a message that nobody has published", "nobody has published", func(j *journal, r *reader, p func(int) *publish) {
			j.delivered(r, "stranger", []byte(content("stranger")), false, -1)
		}},
		{"a message of another queue", "was not for queue", func(j *journal, r *reader, p func(int) *publish) {
			id := p(1).id
			j.delivered(j.newReader("c", "other"), id, []byte(content(id)), false, -1)
		}},
		{"another body", "another body", func(j *journal, r *reader, p func(int) *publish) {
			j.delivered(r, p(1).id, []byte("short"), false, -1)
		}},
		{"a second delivery without the flag", "without the flag", func(j *journal, r *reader, p func(int) *publish) {
			id := p(1).id
			j.delivered(r, id, []byte(content(id)), false, -1)
			j.delivered(r, id, []byte(content(id)), false, -1)
		}},
		{"a second delivery without the flag to a reader that began later", "without the flag", func(j *journal, r *reader, p func(int) *publish) {
			id := p(1).id
			j.delivered(r, id, []byte(content(id)), true, -1)
			other := j.newReader("d", "q")
			other.began++
			j.delivered(other, id, []byte(content(id)), false, -1)
		}},
		{"two deliveries without the flag, one of them late", "without the flag", func(j *journal, r *reader, p func(int) *publish) {
			id := p(1).id
			late := j.newReader("d", "q")
			for _, flag := range []bool{true, false, false} {
				j.delivered(late, id, []byte(content(id)), flag, -1)
			}
		}},
		{"nothing, as the first delivery comes late", "", func(j *journal, r *reader, p func(int) *publish) {
			id := p(1).id
			late := j.newReader("d", "q")
			j.delivered(r, id, []byte(content(id)), true, -1)
			j.delivered(late, id, []byte(content(id)), false, -1)
		}},
		{"the order of a channel", "behind", func(j *journal, r *reader, p func(int) *publish) {
			first, second := p(1).id, p(2).id
			j.delivered(r, second, []byte(content(second)), false, -1)
			j.delivered(r, first, []byte(content(first)), false, -1)
		}},
		{"a delivery count that falls", "delivery count", func(j *journal, r *reader, p func(int) *publish) {
			id := p(1).id
			j.delivered(r, id, []byte(content(id)), true, 2)
			j.delivered(r, id, []byte(content(id)), true, 1)
		}},
		{"a late answer", "answered after", func(j *journal, r *reader, p func(int) *publish) {
			one := p(1)
			one.at -= publishBound + time.Hour
			j.answer(one, nacked)
		}},
		{"nothing, as the machine stood still", "", func(j *journal, r *reader, p func(int) *publish) {
			one := p(1)
			j.beat = one.at - publishBound
			one.at -= publishBound + time.Second
			j.answer(one, nacked)
		}},
		{"the planted loss", "lost", func(j *journal, r *reader, p func(int) *publish) {
			j.plant = "lost"
			one, two := p(1), p(2)
			for _, x := range []*publish{one, two} {
				j.delivered(r, x.id, []byte(content(x.id)), false, -1)
				j.answer(x, acked)
			}
		}},
		{"the planted second delivery", "without the flag", func(j *journal, r *reader, p func(int) *publish) {
			j.plant = "twice"
			one := p(1)
			j.delivered(r, one.id, []byte(content(one.id)), false, -1)
			j.answer(one, acked)
		}},
		{"what comes before its time", "which was to come after", func(j *journal, r *reader, p func(int) *publish) {
			one := p(1)
			one.delay = time.Hour
			j.delivered(r, one.id, []byte(content(one.id)), false, -1)
		}},
		{"a repeat that was to be found", "says the same as", func(j *journal, r *reader, p func(int) *publish) {
			j.rules["q"] = rule{once: true}
			one, two := p(1), p(2)
			two.repeats = one.id
			for _, x := range []*publish{one, two} {
				j.delivered(r, x.id, []byte(content(x.id)), false, -1)
			}
		}},
		{"nothing, as another of the same came", "", func(j *journal, r *reader, p func(int) *publish) {
			j.rules["q"] = rule{once: true}
			one, two := p(1), p(2)
			two.repeats = one.id
			j.answer(one, lost)
			j.delivered(r, one.id, []byte(content(one.id)), false, -1)
			j.answer(two, acked)
		}},
		{"two of the same at a time", "is still there", func(j *journal, r *reader, p func(int) *publish) {
			j.rules["q"] = rule{alone: true}
			one, two := p(1), p(2)
			two.repeats = one.id
			j.delivered(r, one.id, []byte(content(one.id)), false, -1)
			j.settled(r, one.id, "nacked")
			j.delivered(r, two.id, []byte(content(two.id)), false, -1)
		}},
		{"a confirmed one lacks where one had come and gone", "lost", func(j *journal, r *reader, p func(int) *publish) {
			j.rules["q"] = rule{alone: true}
			one, two := p(1), p(2)
			two.repeats = one.id
			j.delivered(r, one.id, []byte(content(one.id)), false, -1)
			j.answer(two, acked)
		}},
		{"nothing, as the other had gone", "", func(j *journal, r *reader, p func(int) *publish) {
			j.rules["q"] = rule{alone: true}
			one, two := p(1), p(2)
			two.repeats = one.id
			j.delivered(r, one.id, []byte(content(one.id)), false, -1)
			j.settled(r, one.id, "acknowledged")
			j.delivered(r, two.id, []byte(content(two.id)), false, -1)
			j.answer(two, acked)
		}},
		{"nothing, as it was carried", "", func(j *journal, r *reader, p func(int) *publish) {
			j.rules["q"] = rule{carried: true}
			one, two := p(1), p(2)
			for _, x := range []*publish{two, one, two} {
				j.delivered(r, x.id, []byte(content(x.id)), false, 0)
			}
		}},
		{"nothing", "", func(j *journal, r *reader, p func(int) *publish) {
			one, two, three := p(1), p(2), p(3)
			j.delivered(r, one.id, []byte(content(one.id)), false, -1)
			j.delivered(r, two.id, []byte(content(two.id)), false, -1)
			j.delivered(r, one.id, []byte(content(one.id)), true, 1)
			j.answer(one, acked)
			j.answer(two, nacked)
			j.answer(three, lost)
		}},
	} {
		j := newJournal()
		r := j.newReader("c", "q")
		c.do(j, r, func(n int) *publish {
			p := &publish{id: strings.Repeat("m", n), channel: "p.1", seq: n, queues: []string{"q"}}
			j.sent(p)
			return p
		})
		if list, _ := j.missing(); len(list) > 0 {
			j.fault("%d confirmed publishes are lost", len(list))
		}
		switch {
		case c.says == "" && len(j.faults) > 0:
			t.Errorf("%s: %v", c.what, j.faults)
		case c.says != "" && (len(j.faults) != 1 || !strings.Contains(j.faults[0], c.says)):
			t.Errorf("%s is not noticed: %v", c.what, j.faults)
		}
	}
}

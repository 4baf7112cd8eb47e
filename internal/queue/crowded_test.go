package queue

import (
	"math/rand/v2"
	"testing"
)

// A queue of 100,000 messages of different sizes gets a limit of bytes, and is told the sizes: in entries as the host
// makes them.
func BenchmarkWeigh(b *testing.B) {
	const n, inEntry = 100_000, 2048
	for _, where := range [...]string{"ready", "waiting", "held", "dead"} {
		b.Run(where, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				r := crowded(where, n)
				first := uint64(r.m.Live(nil)[0].First)
				b.StartTimer()
				r.apply(Command{Kind: Set, Terms: &Terms{Set: &Settings{DeadLetter: DeadLetterHeld, MaxBytes: Most(1 << 40)}}})
				for at := 0; at < n; at += inEntry {
					var cs []Command
					for k := at; k < min(at+inEntry, n); k++ {
						cs = append(cs, Command{Kind: Weigh, First: first + uint64(k), Last: first + uint64(k), Bytes: uint64(k)})
					}
					r.apply(cs...)
				}
				if len(r.m.Unweighed(nil)) > 0 {
					b.Fatal("sizes are missing")
				}
			}
			perMessage(b, n)
		})
	}
}

// crowded returns a queue of which n messages are in one of the states.
func crowded(where string, n int) *rig {
	r := newRig(Command{Kind: Set, Terms: &Terms{Set: &Settings{DeadLetter: DeadLetterHeld}}})
	at := rand.New(rand.NewPCG(1, 1))
	for k := 0; k < n; k += 1000 {
		var cs []Command
		for range 1000 {
			c := Command{Kind: Enqueue, Count: 1, Persistent: true}
			if where == "waiting" {
				c.Terms = &Terms{Delay: 1e9 + at.Uint64N(1e12)}
			}
			cs = append(cs, c)
		}
		r.apply(cs...)
	}
	if where == "held" || where == "dead" {
		r.apply(attach(1, false))
	}
	if where == "dead" {
		r.apply(Command{Kind: Settle, Session: 1, Consumer: 1, How: Discard, First: 1, Last: uint64(n)})
	}
	return r
}

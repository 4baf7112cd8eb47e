package peer

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"holdfast/internal/clock"
)

const ms = int64(time.Millisecond)

// silentFor steps a pulse at the times given and returns the first at which a
// node never heard is suspect, 0 if it is not.
func silentFor(times ...int64) int64 {
	p := newPulse(200*time.Millisecond, 4, 0)
	var s silence
	for _, at := range times {
		if s.grow(p.step(at*ms), p.limit) {
			return at
		}
	}
	return 0
}

func every(period, until int64) (times []int64) {
	for at := period; at <= until; at += period {
		times = append(times, at)
	}
	return times
}

func TestFourMissedBeatsMakeANodeSuspect(t *testing.T) {
	if at := silentFor(every(100, 700)...); at != 0 {
		t.Errorf("suspect after %d ms", at)
	}
	if at := silentFor(every(100, 2000)...); at != 800 {
		t.Errorf("suspect after %d ms, want 800", at)
	}
	// Steps that come a little late count for what they are.
	if at := silentFor(every(130, 2000)...); at != 910 {
		t.Errorf("suspect after %d ms, want 910", at)
	}
}

func TestOurOwnStallDoesNotCount(t *testing.T) {
	// Just before the limit our process stops for a minute. What was sent
	// meanwhile lies unread: the silence is cut in half and grows on from there.
	times := append(every(100, 700), 60700, 60800, 60900, 61000, 61100, 61200)
	if at := silentFor(times...); at != 61100 {
		t.Errorf("suspect at %d ms, want 61100", at)
	}
	// Of a step that is late without that, only a part counts.
	if at := silentFor(350, 700, 1050, 1400, 1750); at != 0 {
		t.Errorf("suspect at %d ms", at)
	}
}

func TestSilenceIsSaidOnce(t *testing.T) {
	p := newPulse(200*time.Millisecond, 4, 0)
	var s silence
	if s.heard() {
		t.Error("a node was suspect from the start")
	}
	said := 0
	for at := int64(100); at <= 5000; at += 100 {
		if s.grow(p.step(at*ms), p.limit) {
			said++
		}
	}
	if said != 1 || !s.heard() || s.heard() {
		t.Errorf("suspect %d times, and not trusted once", said)
	}
}

// A process that is stalled now and then gives up a silent node all the same, and not at once after a stall.
func TestOurOwnStallsDoNotKeepASilentNode(t *testing.T) {
	const most = 10_000 * ms
	p := newPulse(200*time.Millisecond, 4, 0)
	var s silence
	now, steps, given := int64(0), 0, 0
	for given == 0 && steps < 1000 {
		steps++
		if now += 100; steps%20 == 0 {
			now += 3000
		}
		by := p.step(now * ms)
		s.grow(by, p.limit)
		if s.over(by, most, p.limit) {
			given = steps
		}
	}
	if given < 100 || given > 110 {
		t.Errorf("given up after %d steps; it is 10 s without those that came late", given)
	}
	s = silence{ns: most - 1, suspect: true}
	by := p.step((now + 3000) * ms)
	for steps = 0; !s.over(by, most, p.limit); steps++ {
		now += 100
		by = p.step((now + 3000) * ms)
		s.grow(by, p.limit)
	}
	if steps != 4 {
		t.Errorf("given up %d steps after a stall", steps)
	}
}

func TestBeatsKeepTheirTime(t *testing.T) {
	p := newPulse(200*time.Millisecond, 4, 0)
	beats := 0
	for at := int64(0); at <= 10000; at += 99 { // the ticks are a little early
		if p.step(at * ms).beat {
			beats++
		}
	}
	if beats != 51 {
		t.Errorf("%d beats in 10 s", beats)
	}
}

func TestComplaintsDoNotRepeatThemselves(t *testing.T) {
	var out strings.Builder
	m := clock.NewManual(time.Unix(0, 0))
	c := complaints{clock: m, log: slog.New(slog.NewTextHandler(&out, nil))}
	for range 5 {
		c.refused("a", "first")
		c.refused("b", "second")
	}
	m.Advance(time.Minute)
	c.refused("a", "first")
	if n := strings.Count(out.String(), "first"); n != 2 || strings.Count(out.String(), "second") != 1 {
		t.Errorf("written:\n%s", out.String())
	}
	if !strings.Contains(out.String(), "more_of_them=4") {
		t.Errorf("not said how many were left out:\n%s", out.String())
	}
	for i := range 10 * maxComplaints {
		c.refused(strings.Repeat("x", i), "third")
	}
	if len(c.said) > maxComplaints {
		t.Errorf("%d kinds are remembered", len(c.said))
	}
}

// The log names a node as people call it: as the node says itself while its links are up, else as its cluster knows it.
func TestNodesAreLoggedByName(t *testing.T) {
	g := newTarget(&TCP{o: Options{Called: func(n NodeID) string { return "known" }}}, Target{ID: 7})
	if name := g.called(0); name != "unknown" {
		t.Errorf("a node whose id is not known is called %q", name)
	}
	if name := g.called(7); name != "known" {
		t.Errorf("a node that has said nothing is called %q", name)
	}
	k := newLink(g)
	k.hello.Name = "itself"
	g.up.Store(k)
	if name := g.called(7); name != "itself" {
		t.Errorf("a node that is linked is called %q", name)
	}
}

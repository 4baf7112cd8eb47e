package node

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/cluster"
	"holdfast/internal/node/catgroup"
	"holdfast/internal/peer"
	"holdfast/internal/replica"
)

// journal is a log that can be read.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) has(parts ...string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(strings.Split(j.text.String(), "\n"), func(line string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
	})
}

// alone starts a node of a trio that goes on with the catalog alone, and returns its log.
func (tr *trio) alone(t *testing.T, i int) *journal {
	t.Helper()
	j := new(journal)
	o := tr.options(i)
	o.Logger = slog.New(slog.NewTextHandler(j, nil))
	forced := false
	o.Force = func(err error) {
		if forced = err == nil; err != nil {
			t.Error(err)
		}
	}
	n, err := Start(o)
	if err != nil || !forced {
		t.Fatal(err)
	}
	tr.nodes[i] = n
	return j
}

func (tr *trio) stopAll(t *testing.T) {
	t.Helper()
	for i := range tr.nodes {
		if tr.nodes[i] != nil {
			tr.stop(t, i)
		}
	}
}

// apart reports whether a node says of another that their catalogs have come apart.
func (tr *trio) apart(i, other int) bool {
	c := tr.nodes[i].cluster()
	self, name := c.Nodes[i].Name, c.Nodes[other].Name
	return slices.Equal(c.Partitions[self], []string{name}) && strings.Contains(c.Nodes[other].Reason, "apart") && tr.nodes[i].clusterValues().Apart == 1
}

// A node that has come apart is listed as such while it is there, and once more when it has come back.
func TestANodeThatIsApartGoesDown(t *testing.T) {
	hands, j := clock.NewManual(time.Unix(1_700_000_000, 0)), new(journal)
	l := &lineage{m: &mesh{n: &Node{clock: hands, log: slog.New(slog.NewTextHandler(j, nil))}}, apart: map[uint64]*parted{}}
	l.set(cluster.Line{cluster.NewForce()})
	its := peer.Hello{Node: 2, Name: "n2", Line: cluster.Line{cluster.NewForce()}.Bytes()}
	apart := func() bool {
		if listed := l.from(2) != ""; listed != (l.count() == 1) {
			t.Errorf("listed: %v, counted: %d", listed, l.count())
		}
		return l.from(2) != ""
	}
	for range 5 { // it is tried again and again
		l.refused(its)
		hands.Advance(time.Duration(apartFor) - 1)
		if !apart() {
			t.Fatal("it is there, and not listed")
		}
	}
	hands.Advance(1)
	if apart() {
		t.Error("it has gone, and is listed")
	}
	l.refused(its)
	if !apart() {
		t.Error("it is back, and not listed")
	}
	if n := strings.Count(j.text.String(), "level=ERROR"); n != 1 {
		t.Errorf("that was said %d times in one minute", n)
	}
	l.linked(2)
	if apart() {
		t.Error("it has a link, and is listed")
	}
}

func declare(t *testing.T, n *Node, queue string) {
	t.Helper()
	must(open(t, n).QueueDeclare(queue, true, false, false, false, nil))(t)
}

func (tr *trio) has(i int, queue string) bool {
	return tr.nodes[i].catalog.View().Queue("/", queue) != nil
}

// R311: two of three nodes were ordered to go on alone, each without the other. They do not talk to each other, and both say so. The third
// goes with the one that it meets first, and has no part with the other from then on, whatever is started when.
func TestTwoForcedNodesComeApart(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	declare(t, tr.nodes[0], "before")
	tr.stopAll(t)
	tr.alone(t, 0)
	declare(t, tr.nodes[0], "first")
	tr.stop(t, 0)
	second := tr.alone(t, 1)
	declare(t, tr.nodes[1], "second")
	tr.start(t, 0)
	eventually(t, "n1 says that n2 has come apart", func() bool { return tr.apart(0, 1) })
	eventually(t, "n2 says that n1 has come apart", func() bool { return tr.apart(1, 0) })
	eventually(t, "n2 says what to do", func() bool { return second.has("level=ERROR", "n1", "force_reset") })
	tr.stop(t, 1)

	tr.start(t, 2)
	eventually(t, "n3 has the catalog of n1", func() bool { return tr.has(2, "first") && tr.has(2, "before") })
	tr.stop(t, 0)
	tr.start(t, 1)
	eventually(t, "n3 has no part with n2", func() bool { return tr.apart(2, 1) })
	tr.stop(t, 2) // which is written down
	if id := must(readIdentity(tr.places[2].disk, tr.places[2].dir))(t); len(id.Line) != 1 {
		t.Errorf("it follows %v", id.Line)
	}
	tr.start(t, 0, 2)
	eventually(t, "n3 has no part with n2 after a start", func() bool { return tr.apart(2, 1) && tr.apart(0, 1) })
	if tr.has(2, "second") || tr.has(0, "second") || tr.has(1, "first") {
		t.Error("the catalogs were mixed")
	}
	declare(t, tr.nodes[2], "third")
	eventually(t, "n3 is of n1's cluster", func() bool { return tr.has(0, "third") })
	if tr.has(1, "third") {
		t.Error("n3 is not of n1's cluster alone")
	}
}

// Nodes that were away while another one went on alone take over its catalog, more than once, and whatever they had agreed on meanwhile.
func TestWhoWasAwayDuringAForceFollows(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	for i, queue := range []string{"first", "second"} {
		tr.stop(t, 0)
		for k := range 5 {
			declare(t, tr.nodes[1], fmt.Sprint("lost", i, k))
		}
		tr.stopAll(t)
		tr.alone(t, 0)
		declare(t, tr.nodes[0], queue)
		for _, back := range []int{1, 2} {
			tr.start(t, back)
			eventually(t, "it has followed", func() bool { return tr.has(back, queue) })
			if tr.has(back, fmt.Sprint("lost", i, 0)) {
				t.Errorf("n%d has more than what it follows", back+1)
			}
		}
		for i := range tr.nodes {
			if line := tr.nodes[i].mesh.lineage.now(); !slices.Equal(line, tr.nodes[0].mesh.lineage.now()) {
				t.Errorf("n%d follows %v", i+1, line)
			}
			eventually(t, "all vote", func() bool { return voters(tr.nodes[i]) == 3 })
		}
	}
	if line := tr.nodes[2].mesh.lineage.now(); len(line) != 2 {
		t.Errorf("n3 follows %v", line)
	}
	declare(t, tr.nodes[1], "after")
	eventually(t, "the three are a cluster", func() bool { return tr.has(0, "after") && tr.has(2, "after") })
}

// A node that went on alone is stopped while those that are back get their votes, one after the other: it goes when they can decide without
// it.
func TestANodeThatStopsLeavesAMajority(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	tr.stopAll(t)
	tr.alone(t, 0)
	status := func() replica.RaftStatus {
		asked := make(chan replica.RaftStatus, 1)
		tr.nodes[0].commands.Group().AskRaftStatus(func(st replica.RaftStatus) { asked <- st })
		return <-asked
	}
	eventually(t, "the others are members again", func() bool { return len(status().Members) == 3 })
	busy := tr.nodes[0].mesh.busy
	busy <- struct{}{} // nobody gets a vote
	tr.start(t, 1, 2)
	eventually(t, "both could vote", func() bool {
		st := status()
		able := 0
		for i := range st.Members {
			if catgroup.IsAble(&st, &st.Members[i]) && tr.nodes[0].mesh.isUp(st.Members[i].Node) {
				able++
			}
		}
		return able == 3
	})
	for i := range tr.nodes {
		eventually(t, "one votes, and is said to", func() bool { return voters(tr.nodes[i]) == 1 })
	}
	<-busy
	tr.stop(t, 0)
	eventually(t, "a queue is declared", func() bool { // not before the catalog that it has got knows of its start
		_, err := open(t, tr.nodes[1]).QueueDeclare("after", true, false, false, false, nil)
		return err == nil
	})
	if voters(tr.nodes[1]) != 3 {
		t.Errorf("%d vote", voters(tr.nodes[1]))
	}
}

func voters(n *Node) (count int) {
	for node := range n.catalog.View().Nodes().All() {
		if node.Voter {
			count++
		}
	}
	return count
}

// A node was forced although a majority of the others was there, only not to be seen: they go on, and do not take over its catalog, not
// even when they have no leader later, or start again. R311
func TestAMajorityDoesNotFollowAForcedNode(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	tr.stopAll(t)
	tr.alone(t, 0)
	declare(t, tr.nodes[0], "forced")
	line := tr.nodes[0].mesh.lineage.now()
	tr.stop(t, 0)
	tr.start(t, 1, 2)
	declare(t, tr.nodes[1], "majority")
	for _, i := range []int{1, 2} {
		m := tr.nodes[i].mesh
		eventually(t, "the majority has a leader", m.isLed)
		if err := m.lineage.meet(peer.Hello{Name: "n1", Line: line.Bytes()}); !errors.Is(err, peer.ErrLine) {
			t.Fatal(err)
		}
	}
	apart := func(i int) {
		said := func(i, of int, what string) bool {
			return strings.Contains(tr.nodes[i].cluster().Nodes[of].Reason, what)
		}
		eventually(t, "the majority says so", func() bool { return said(i, 0, "the one here went on, too") })
		eventually(t, "so does the one that was forced", func() bool { return said(0, i, "since its own went on, too") })
	}
	tr.stop(t, 2)
	eventually(t, "who is left has no leader", func() bool { return !tr.nodes[1].mesh.isLed() })
	tr.start(t, 0)
	apart(1)
	tr.stop(t, 1)
	tr.start(t, 1, 2)
	apart(1)
	apart(2)
	if tr.has(1, "forced") || tr.has(2, "forced") || tr.has(0, "majority") || !tr.has(1, "majority") {
		t.Error("the catalogs were mixed")
	}
	declare(t, tr.nodes[2], "more")
}

// A node that ends between the force and the note of it finds out at the next start.
func TestAForceThatWasNotNoted(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	tr.stopAll(t)
	disk, dir := tr.places[0].disk, tr.places[0].dir
	note := func(line cluster.Line, forcing *cluster.Force) {
		id := must(readIdentity(disk, dir))(t)
		id.Line, id.Forcing = line, forcing
		if err := id.save(disk, dir); err != nil {
			t.Fatal(err)
		}
	}
	noted := func() cluster.Line {
		id := must(readIdentity(disk, dir))(t)
		if id.Forcing != nil {
			t.Error("it is still open")
		}
		return id.Line
	}
	f := cluster.NewForce()
	note(nil, &f) // it came to nothing
	tr.start(t, 0, 1)
	tr.stopAll(t)
	if line := noted(); len(line) != 0 {
		t.Errorf("it follows %v", line)
	}
	tr.alone(t, 0)
	tr.stop(t, 0)
	line := noted()
	if len(line) != 1 {
		t.Fatalf("it follows %v", line)
	}
	note(nil, &line[0])
	tr.start(t, 0)
	if now := tr.nodes[0].mesh.lineage.now(); !slices.Equal(now, line) || !slices.Equal(noted(), line) {
		t.Errorf("it follows %v, not %v", now, line)
	}
}

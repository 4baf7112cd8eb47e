package catalog

import (
	"fmt"

	"holdfast/internal/amqperr"
)

// The levels that this build knows. A level is one number for all formats that nodes exchange or agree on: docs/internals/formats.md
// says which versions of them belong to which.
const (
	leastLevel = 1
	mostLevel  = 2
)

// PolicyLevel is the level that policies, and the third rules of a declare, belong to.
const PolicyLevel = 2

// NoPolicies says why there are no policies below their level.
const NoPolicies = "policies belong to level 2 of the formats: every node of the cluster has to run a version that knows it first"

// NoPauses says why no queue can be paused below it.
const NoPauses = "pausing a queue belongs to level 2 of the formats: every node of the cluster has to run a version that knows it first"

// Levels is what a build knows: the formats of every level from Least to Most.
type Levels struct{ Least, Most uint16 }

// KnownLevels is what this build knows.
func KnownLevels() Levels { return Levels{leastLevel, mostLevel} }

// firstLevels is what a node knows that has never said so: it writes nothing that a build of the first level could not read.
var firstLevels = Levels{1, 1}

// Has reports whether a level is one of them.
func (l Levels) Has(level uint16) bool { return l.Least <= level && level <= l.Most }

// String is the range for people.
func (l Levels) String() string {
	if l.Least == l.Most {
		return fmt.Sprintf("level %d", l.Least)
	}
	return fmt.Sprintf("levels %d to %d", l.Least, l.Most)
}

// Check says why a node that knows these levels can be in no cluster of a level; nil: it can.
func (l Levels) Check(level uint16) error {
	switch {
	case level > l.Most:
		return fmt.Errorf("the cluster is at level %d of its formats, this version of the node knows %v only: update this node; "+
			"there is no way back to an older version once the cluster has gone to level %d", level, l, level)
	case level < l.Least:
		return fmt.Errorf("the cluster is at level %d of its formats, this version of the node knows %v only: first run a version on all nodes that knows both; "+
			"the cluster goes up by itself then", level, l)
	}
	return nil
}

// Levels is what the node's latest start knows.
func (n *Node) Levels() Levels {
	if n.levels == (Levels{}) {
		return firstLevels
	}
	return n.levels
}

// Level is what all nodes write and read: see [Levels]. It never falls.
func (v *View) Level() uint16 { return max(v.level, 1) }

// NextLevel is the level that the cluster could go to since every node knows it, 0 if there is none.
func (v *View) NextLevel() uint16 {
	next := v.Level() + 1
	if v.nodes.Len() == 0 || v.unknowing(next) != nil {
		return 0
	}
	return next
}

// unknowing is a node that does not know a level, nil if all know it.
func (v *View) unknowing(level uint16) *Node {
	for n := range v.Nodes().All() {
		if !n.Levels().Has(level) {
			return n
		}
	}
	return nil
}

// SetLevels returns the command by which a node says what it knows; 404 if there is no such node, 406 if the cluster is at
// another level. Result.Node. A cluster that has not been filled yet goes to the least level that the node knows, if those that
// have started before it know that, too: NextLevel leads on from there.
func SetLevels(node uint64, l Levels) []byte {
	e := begin(cmdSetLevels, 16)
	e.uint(node)
	e.uint(uint64(l.Least))
	e.uint(uint64(l.Most))
	return e.b
}

// RaiseLevel returns the command that leads the cluster to a level, which every node has to know (406). It does nothing if the
// cluster is there, or above.
func RaiseLevel(to uint16) []byte {
	e := begin(cmdRaiseLevel, 4)
	e.uint(uint64(to))
	return e.b
}

func (d *decoder) level() uint16 {
	level := d.Uint()
	if level == 0 || level > 1<<16-1 {
		d.Fail()
	}
	return uint16(level)
}

func (d *decoder) levels() Levels {
	l := Levels{d.level(), d.level()}
	if l.Least > l.Most {
		d.Fail()
	}
	return l
}

func (t *txn) setLevels(id uint64, l Levels) *amqperr.Error {
	n := t.Node(id)
	if n == nil {
		return noNode(id)
	}
	if !t.bootstrapped && l.Least > t.Level() && t.agreeable(id, l.Least) {
		t.level = l.Least
		t.generation++
	}
	if err := l.Check(t.Level()); err != nil {
		return levelRefused(err)
	}
	if n.Levels() != l {
		changed := *n
		if changed.levels = l; l == firstLevels {
			changed.levels = Levels{}
		}
		n = &changed
		t.putNode(n)
	}
	t.res.Node = n
	return nil
}

// agreeable reports whether nobody else who has been there yet would mind a level.
func (t *txn) agreeable(id uint64, level uint16) bool {
	for n := range t.Nodes().All() {
		there := n.Incarnation != 0 || n.levels != Levels{}
		if n.ID != id && there && !n.Levels().Has(level) {
			return false
		}
	}
	return true
}

func (t *txn) raiseLevel(to uint16) *amqperr.Error {
	if to <= t.Level() {
		return nil
	}
	if n := t.unknowing(to); n != nil {
		return levelUnknown(n, to)
	}
	t.level = to
	t.generation++
	return nil
}

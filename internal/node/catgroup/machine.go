package catgroup

import (
	"encoding/binary"

	"holdfast/internal/catalog"
	"holdfast/internal/invariant"
	"holdfast/internal/planted"
)

// envelopeVersion starts a command in its envelope.
const envelopeVersion = 1

func envelope(origin, session, seq uint64, cmd []byte) []byte {
	b := make([]byte, 0, len(cmd)+24)
	b = append(b, envelopeVersion)
	b = binary.AppendUvarint(b, origin)
	b = binary.AppendUvarint(b, session)
	b = binary.AppendUvarint(b, seq)
	return append(b, cmd...)
}

// Machine is the catalog's machine as the group of a cluster sees it: its commands come in envelopes.
type Machine struct {
	*catalog.Machine
	Self     uint64                                               // this node
	Applied  func(origin, session, seq uint64, r *catalog.Result) // on the worker; r is nil for a barrier
	Restored func()                                               // on the worker: the state came whole
	Most     uint16                                               // the highest level of the formats that can be read here
}

// unfit reports whether the cluster has gone to a level that is not known here. The node ends then: nothing of what follows
// is applied, and no state is written that would lack it.
func (c *Machine) unfit() bool { return c.View().Level() > c.Most }

// AppendSnapshot implements replica.SimpleMachine.
func (c *Machine) AppendSnapshot(dst []byte) []byte {
	if c.unfit() {
		invariant.Failf("node: the catalog is at level %d, this version knows none above %d", c.View().Level(), c.Most)
	}
	return c.Machine.AppendSnapshot(dst)
}

// Apply implements replica.SimpleMachine.
func (c *Machine) Apply(index uint64, now int64, b []byte) any {
	if c.unfit() {
		return (*catalog.Result)(nil)
	}
	if len(b) == 0 || b[0] != envelopeVersion {
		invariant.Failf("node: a command of the catalog in an unknown envelope")
	}
	b = b[1:]
	var head [3]uint64
	for i := range head {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			invariant.Failf("node: the envelope of a command of the catalog is cut")
		}
		head[i], b = v, b[n:]
	}
	var r *catalog.Result
	switch {
	case len(b) == 0:
	case planted.Is(planted.CommandSkipped) && head[0] != c.Self && head[2]%4 == 0:
		r = new(catalog.Result)
	default:
		r = c.Machine.Apply(index, now, b).(*catalog.Result)
	}
	c.Applied(head[0], head[1], head[2], r)
	return r
}

// Restore implements replica.SimpleMachine.
func (c *Machine) Restore(blob []byte) error {
	err := c.Machine.Restore(blob)
	if err == nil {
		c.Restored()
	}
	return err
}

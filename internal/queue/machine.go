package queue

// Machine is one queue. It has one owner, who calls its methods one after the
// other.
type Machine struct {
	applied uint64
	now     int64
}

// New returns the machine of a new, empty queue.
func New() *Machine { return &Machine{} }

// Apply carries out an entry. What has to be done about it is appended to fx.
func (m *Machine) Apply(e *Entry, fx *Effects) {}

// Applied returns the index of the last entry applied.
func (m *Machine) Applied() uint64 { return m.applied }

// Next returns the number that the next message put into lane gets; with
// ChunkLane, the next chunk.
func (m *Machine) Next(lane uint8) Number { return 0 }

// Ready returns how many messages are ready.
func (m *Machine) Ready() uint64 { return 0 }

// Unacked returns how many messages are held by consumers and getters.
func (m *Machine) Unacked() uint64 { return 0 }

// Consumers returns how many consumers there are, cancelled ones and getters not counted.
func (m *Machine) Consumers() int { return 0 }

// HandedOut reports whether a persistent message was handed out since the
// last Recover. The entry that makes it true must be on disk before its
// deliveries are carried out.
func (m *Machine) HandedOut() bool { return false }

// Live appends to dst the numbers of all messages and chunks in the queue, in
// ascending order, as ranges.
func (m *Machine) Live(dst []Numbers) []Numbers { return dst }

// Snapshot appends the whole state to dst. Equal states give equal bytes.
func (m *Machine) AppendSnapshot(dst []byte) []byte { return dst }

// Restore sets the machine to the state of a snapshot. On an error the machine
// must not be used.
func (m *Machine) Restore(src []byte) error { return nil }

// Explain says what the queue's consumers wait for.
func (m *Machine) Explain() Explanation { return Explanation{} }

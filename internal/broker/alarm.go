package broker

import (
	"sort"
	"strings"
	"time"
)

// AlarmKind names what is running short.
type AlarmKind string

// The kinds of alarm, as RabbitMQ names them.
const (
	AlarmMemory AlarmKind = "memory"
	AlarmDisk   AlarmKind = "disk"
)

// Alarm is something that is running short on this node. While one is on, connections that
// publish are held back; those that only consume are not touched, so that
// queues can drain.
type Alarm struct {
	Kind   AlarmKind `json:"kind"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// SetAlarm turns an alarm on or off. Turning on one that is on only changes its reason.
func (b *Broker) SetAlarm(kind AlarmKind, on bool, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was, told := b.alarms[kind]
	before := b.blockReason()
	switch {
	case on && told:
		was.Reason = why
		b.alarms[kind] = was
	case on:
		b.alarms[kind] = Alarm{Kind: kind, Reason: why, Since: b.clock.Now()}
		b.log.Warn("alarm is on: publishers are blocked", "alarm", kind, "reason", why)
	case told:
		delete(b.alarms, kind)
		b.log.Info("alarm is off", "alarm", kind, "reason", why)
	}
	after := b.blockReason()
	if before == after {
		return
	}
	// Conn.Close and Register take b.mu too, so that no connection misses a change.
	for _, c := range b.conns {
		c.control.Block(after != "", after)
	}
}

// Alarms lists the alarms that are on.
func (b *Broker) Alarms() []Alarm {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]Alarm, 0, len(b.alarms))
	for _, a := range b.alarms {
		list = append(list, a)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Kind > list[j].Kind })
	return list
}

// blockReason is what blocked clients are told, "" without an alarm. b.mu is held.
func (b *Broker) blockReason() string {
	if len(b.alarms) == 0 {
		return ""
	}
	kinds := make([]string, 0, len(b.alarms))
	for k := range b.alarms {
		kinds = append(kinds, string(k))
	}
	sort.Strings(kinds)
	return "low on " + strings.Join(kinds, " & ")
}

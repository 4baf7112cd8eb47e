package queuehost

import (
	"errors"
	"io/fs"
	"sync"
	"time"

	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

const (
	// mostUnread is how often in a row a leader may fail to read what it has to deliver while nobody takes its place.
	mostUnread = 5
	// unreadPause is how long it waits after the first time before it reads again; twice as long after each further one.
	unreadPause = 100 * time.Millisecond
	// unreadFor is how long such a failure counts.
	unreadFor = int64(time.Minute)
)

// unread counts the failures of leaders to read what is not known to be damaged. There are hardly ever any.
type unread struct {
	mu    sync.Mutex
	times map[seglog.GroupID]failures
}

type failures struct {
	n    int   // in a row
	last int64 // clock.Mono
}

// failed notes a failure, and says the how manieth in a row it is.
func (u *unread) failed(id seglog.GroupID, now int64) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	f := u.times[id]
	if now-f.last >= unreadFor {
		f.n = 0
	}
	if u.times == nil {
		u.times = map[seglog.GroupID]failures{}
	}
	f = failures{f.n + 1, now}
	u.times[id] = f
	return f.n
}

func (u *unread) forget(id seglog.GroupID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.times, id)
}

// Unreadable says that something could not be read that the queue has handed over. Of a quorum queue others have it: another member leads,
// and hands it over again.
func (h *Handle) Unreadable(err error) {
	if h.host != nil {
		h.host.leaveToOthers(nil, err)
	}
}

// leaveToOthers has another member lead a quorum queue, since this one could not read something. One whose data are damaged is taken out of
// service. s is the session that it was for, nil: none. False: nobody else has it.
func (h *host) leaveToOthers(s *session, err error) bool {
	if h.lead == nil || Lost(err) {
		return false
	}
	var damage *seglog.CorruptError
	switch {
	case errors.Is(err, fs.ErrClosed): // the node stops, nothing is damaged, and others will lead
	case errors.As(err, &damage):
		h.group.Do(func() { h.quarantine(err) })
	default:
		h.group.Do(func() { h.passOn(s, err, h.reg.o.Clock.Mono()) })
	}
	return true
}

// passOn has another member lead, since this one could not read what it has to deliver to a session, or to hand
// over, and does not know its data to be damaged. If nobody takes over, the session begins another try here after a while, for which everything is read
// again; in the end the member is taken out of service. It runs on the worker.
func (h *host) passOn(s *session, err error, now int64) {
	if h.m == nil || !h.lead.serving {
		return // the session has been told
	}
	r := h.reg
	n := r.unread.failed(h.def.ID, now)
	if n > mostUnread {
		r.unread.forget(h.def.ID)
		h.quarantine(err)
		return
	}
	r.o.Logger.Error("a message cannot be read: another member is to lead the queue", "vhost", h.known().VHost, "queue", h.known().Name, "time", n, "error", err)
	h.group.TransferLeaderTo(0, func(kept error) {
		switch {
		case errors.Is(kept, replica.ErrNotHandedOver) && s == nil: // it is tried again by whoever could not read
		case errors.Is(kept, replica.ErrNotHandedOver):
			r.o.Clock.AfterFunc(unreadPause<<(n-1), func() { s.lost(r.self()) })
		default:
			r.unread.forget(h.def.ID)
		}
	})
}

package peer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"holdfast/internal/clock"
)

// complaints are log lines that would repeat themselves: each kind is written
// at most once in its interval, with how many were left out.
type complaints struct {
	log   *slog.Logger
	clock clock.Clock

	mu   sync.Mutex
	said map[string]complaint
}

type complaint struct {
	until   int64 // monotonic
	leftOut int
}

// maxComplaints bounds the kinds that are remembered; strangers choose some of them.
const maxComplaints = 128

// say writes a line of a kind unless one was written less than every ago.
func (c *complaints) say(level slog.Level, every time.Duration, kind, text string, args ...any) {
	now := c.clock.Mono()
	c.mu.Lock()
	last, known := c.said[kind]
	if known && now < last.until {
		last.leftOut++
		c.said[kind] = last
		c.mu.Unlock()
		return
	}
	if !known && len(c.said) >= maxComplaints {
		for k, v := range c.said {
			if now >= v.until {
				delete(c.said, k)
			}
		}
		if len(c.said) >= maxComplaints {
			c.mu.Unlock()
			return
		}
	}
	if c.said == nil {
		c.said = map[string]complaint{}
	}
	c.said[kind] = complaint{until: now + int64(every)}
	c.mu.Unlock()
	if last.leftOut > 0 {
		args = append(args, "more_of_them", last.leftOut)
	}
	c.log.Log(context.Background(), level, text, args...)
}

// refused writes that a connection with somebody came to nothing, once a minute.
func (c *complaints) refused(kind, text string, args ...any) {
	c.say(slog.LevelWarn, time.Minute, kind, text, args...)
}

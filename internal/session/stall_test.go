package session

import "testing"

// R472: a consumer says that it waits for its client as long as that has yet to take something, or to settle as much as its channel may hold.
func TestWaitsForClient(t *testing.T) {
	for _, c := range []struct {
		what        string
		h           holder
		outstanding int
		limit       uint32
		used        int64
		want        bool
	}{
		{what: "all is taken", outstanding: 5, want: false},
		{what: "something is not", h: holder{unwritten: 1}, outstanding: 5, want: true},
		{what: "the channel holds too much", outstanding: maxUnacked, want: true},
		{what: "credit is kept back for that", h: holder{kept: 1}, want: true},
		{what: "nobody knows", h: holder{noAck: true}, want: true},
		{what: "it is cancelled", h: holder{leaving: true}, want: true},
		{what: "under a common limit", h: holder{counted: true}, limit: 5, used: 4, want: false},
		{what: "the limit is reached", h: holder{counted: true}, limit: 5, used: 5, want: true},
		{what: "the limit was lifted", h: holder{counted: true}, used: 5, want: false},
		{what: "its credit is under way", h: holder{counted: true, granted: 1}, limit: 5, used: 4, want: true},
	} {
		c.h.ch = new(channel)
		c.h.ch.flow.outstanding, c.h.ch.flow.limit, c.h.ch.flow.used = c.outstanding, c.limit, c.used
		if got := c.h.WaitsForClient(); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

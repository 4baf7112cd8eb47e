package queuehost

// Window keeps the credit of one consumer on its session's side: the session
// attaches with Credit = Size and, as deliveries leave for the client, calls
// Sent, which says from time to time how much to grant with Handle.Credit.
// What is under way to the client is so bounded by Size, and grants are rare.
type Window struct {
	// Size is the credit given at attach.
	Size uint32
	sent uint32
}

// Sent notes that n deliveries have left and returns the credit to grant now,
// mostly 0: half of the window is granted at a time.
func (w *Window) Sent(n uint32) uint32 {
	w.sent += n
	if w.sent < max(w.Size/2, 1) {
		return 0
	}
	g := w.sent
	w.sent = 0
	return g
}

package node

// ballastMax is enough that a broker with little in memory collects 10 to 50 times a second under full load instead of 30 to
// 170 times; more gained nothing.
const ballastMax = 16 << 20

// ballastShare says which part of the memory there is ballast takes at most, so that a small container is not filled with garbage.
const ballastShare = 16

// A ballast is bytes that are allocated and never touched, so that they take addresses and no memory. The collector runs when
// the heap has doubled, and counts them: without ballast, a heap of 6 MiB that takes in 400 MB of messages a second is collected
// every 16 ms. The price is that up to as many bytes of garbage more lie in memory. A larger GOGC would cost that again for every
// byte that is live, and one that follows the heap comes too late when a small heap grows at once.
type ballast []byte

// newBallast returns the ballast for a process that may use as many bytes as the smallest of the bounds says: what there is, the
// mark of the memory alarm, the limit of the collector. 0 is none known. It must be made before the heap has been used, since
// memory that is used again is cleared, and so touched. The owner keeps it as long as it is to count.
func newBallast(bounds ...uint64) ballast {
	size := uint64(0)
	for _, b := range bounds {
		if part := min(b/ballastShare, ballastMax); part > 0 && (size == 0 || part < size) {
			size = part
		}
	}
	return make(ballast, size)
}

// less returns bytes, which the runtime has counted as in use, without the ballast.
func (b ballast) less(bytes uint64) uint64 { return bytes - min(bytes, uint64(len(b))) }

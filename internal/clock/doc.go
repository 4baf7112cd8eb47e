// Package clock is time as the rooms see it: wall time for stamps, monotonic time for measuring, timers and tickers.
//
// System is the machine's clock. Manual stands still until a test moves it. The package never sleeps on its own and knows
// nothing of what the time is used for.
//
//	clock.go   the interface and the system clock
//	manual.go  the clock tests turn by hand
package clock

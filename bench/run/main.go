// Command run measures one broker with the scenarios of bench/scenarios.txt:
//
//	go run ./bench/run -only latency holdfast
package main

import (
	"fmt"
	"os"

	"holdfast/bench/harness"
)

func main() {
	if err := harness.Main(os.Args[1:], 1, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// Command compare runs the scenarios of bench/scenarios.txt against two brokers or more in turn, and prints medians and
// ratios to the first:
//
//	go run ./bench/compare rabbitmq holdfast
//	go run ./bench/compare -only durable holdfast@HEAD~5 holdfast
package main

import (
	"fmt"
	"os"

	"holdfast/bench/harness"
)

func main() {
	if err := harness.Main(os.Args[1:], 2, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// Command campaign runs the scenarios that a target looks at (bench/targets.txt) against a peer and against Holdfast, and
// prints which targets are met. A run that was cut short keeps what it has, and a second call does the rest:
//
//	go run ./bench/campaign
//	go run ./bench/campaign -only soak -rounds 1
//	go run ./bench/campaign -print
package main

import (
	"fmt"
	"os"

	"holdfast/bench/harness"
)

func main() {
	if err := harness.Campaign(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

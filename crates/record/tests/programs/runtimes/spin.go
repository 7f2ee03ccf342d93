// Work whose stacks are known: `spin` is one call chain, `serve` is goroutines, channels, maps and garbage.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

//go:noinline
func leaf(n int) int {
	x := 0
	for i := 0; i < n; i++ {
		x = (x*31 + i) % 1000003
	}
	return x
}

//go:noinline
func work(n int) int {
	sum := 0
	for i := 0; i < 10; i++ {
		sum += leaf(n)
	}
	return sum
}

//go:noinline
func handle(i int) int {
	m := map[string]int{}
	for j := 0; j < 50; j++ {
		m[fmt.Sprintf("key %d of %d", j, i)] = leaf(500)
	}
	return len(m)
}

func serve(until time.Time) int {
	jobs, results := make(chan int), make(chan int, 16)
	var workers sync.WaitGroup
	for w := 0; w < 4; w++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for job := range jobs {
				results <- handle(job)
			}
		}()
	}
	go func() {
		for i := 0; time.Now().Before(until); i++ {
			jobs <- i
		}
		close(jobs)
		workers.Wait()
		close(results)
	}()
	total := 0
	for result := range results {
		total += result
	}
	return total
}

func spin(until time.Time) int {
	total := 0
	for time.Now().Before(until) {
		total += work(100000)
	}
	return total
}

func main() {
	seconds, _ := strconv.Atoi(os.Args[2])
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	until := time.Now().Add(time.Duration(seconds) * time.Second)
	if os.Args[1] == "spin" {
		fmt.Println("total", spin(until))
	} else {
		fmt.Println("total", serve(until))
	}
}

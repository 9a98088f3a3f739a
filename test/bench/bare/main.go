//go:build bench

// Command bare is the yardstick of the ack benchmark: what net/http costs when
// it reads a body and answers. It is frozen: a change here would make figures
// of different commits incomparable.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, ln.Addr())
	answer := []byte("success")
	err = http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		_, _ = w.Write(answer)
	}))
	fmt.Fprintln(os.Stderr, "bare:", err)
	os.Exit(1)
}

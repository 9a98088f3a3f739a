// Kafkanode is the embedded broker (pkg/kafka/kafkamem) as a process of its own,
// so that a test can stop it, freeze it and kill it like a real one. What it
// acknowledged is in its folder when it comes back on the same address.
//
// It differs from Apache Kafka in what a kill forgets: the sequence numbers of
// producers. A record that was sent again after its death is in the log twice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"tidegate/pkg/kafka/kafkamem"
)

func main() {
	if err := serve(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kafkanode:", err)
		os.Exit(1)
	}
}

func serve(out io.Writer) error {
	var o kafkamem.Options
	flag.StringVar(&o.Dir, "dir", "", "folder of the data; needed")
	flag.StringVar(&o.Addr, "addr", "", "host:port to listen on; empty takes the one that the folder remembers")
	flag.BoolVar(&o.Durable, "durable", false, "sync every batch to the disk before it is acknowledged")
	flag.IntVar(&o.Partitions, "partitions", 0, "partitions of topics that are made without a number")
	flag.Parse()
	if o.Dir == "" {
		return errors.New("give -dir, a folder for the data")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return err
	}
	b, err := kafkamem.Start(o)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, b.Addr())
	<-ctx.Done()
	return b.Close()
}

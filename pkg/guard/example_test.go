package guard_test

import (
	"context"
	"fmt"

	"tidegate/pkg/guard"
)

// In front of a system that cannot bear everybody at once. With a client in
// Deps.Redis all processes that name the back end alike guard it together.
func Example() {
	cfg := guard.DefaultConfig()
	cfg.Backend, cfg.Threshold = "seats", 500 // from 500 requests a second on, share values
	g, err := guard.New(cfg, guard.Deps{})
	if err != nil {
		panic(err)
	}
	defer g.Close()
	r, err := g.Do(context.Background(), "train 7", func(ctx context.Context) ([]byte, error) { return []byte("12 free"), ctx.Err() })
	fmt.Printf("%s (%s) %v", r.Value, r.How, err)
	// Output: 12 free (pass) <nil>
}

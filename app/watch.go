package app

import (
	"context"
	"crypto/sha256"
	"os"
	"time"
)

// watchEvery is how often files are looked at. Polling works on every file
// system and through Kubernetes' symbolic links, which notifications do not.
const watchEvery = 2 * time.Second

// watch calls changed, with the paths that differ, whenever the content of a
// file is not what it was. A file that cannot be read counts as unchanged:
// editors replace files in two steps.
func watch(ctx context.Context, paths []string, every time.Duration, changed func(paths []string)) {
	known := make(map[string][sha256.Size]byte, len(paths))
	for _, p := range paths {
		if sum, ok := sumOf(p); ok {
			known[p] = sum
		}
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		var differ []string
		for _, p := range paths {
			if sum, ok := sumOf(p); ok && sum != known[p] {
				known[p] = sum
				differ = append(differ, p)
			}
		}
		if len(differ) > 0 {
			changed(differ)
		}
	}
}

func sumOf(path string) (sum [sha256.Size]byte, ok bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return sum, false
	}
	return sha256.Sum256(b), true
}

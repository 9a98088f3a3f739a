//go:build linux

package herd

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Metric sums a counter or gauge of the process over its labels; a process that
// is down counts 0.
func (p *Process) Metric(name string) float64 { return p.MetricWith(name, "") }

// MetricWith sums the series whose labels contain the text, for instance
// result="accepted".
func (p *Process) MetricWith(name, label string) float64 {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	body, err := get(ctx, "http://"+p.Ops+"/metrics")
	if err != nil {
		return 0
	}
	sum := 0.0
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(\{[^}]*\})? (\S+)$`).FindAllStringSubmatch(body, -1) {
		if v, err := strconv.ParseFloat(m[2], 64); err == nil && strings.Contains(m[1], label) {
			sum += v
		}
	}
	return sum
}

// RSS is the memory that the process holds, in bytes; 0 if it does not run.
func (p *Process) RSS() int64 { return p.status("VmRSS:") }

// PeakRSS is the most that it has held.
func (p *Process) PeakRSS() int64 { return p.status("VmHWM:") }

func (p *Process) status(field string) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}

// client asks processes of ours; what they are asked for is small.
var client = &http.Client{Timeout: 5 * time.Second}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	return string(b), err
}

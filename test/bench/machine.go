//go:build bench

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"tidegate/pkg/kafka"
	"tidegate/pkg/redis"
)

// machine is where and of what the figures are.
type machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	Kernel string `json:"kernel"`
	Load   string `json:"load_average_before"` // of 1, 5 and 15 minutes
	Go     string `json:"go"`
	Commit string `json:"commit"`
	Kafka  string `json:"kafka"`
	Redis  string `json:"redis"`
}

// describe leaves out what the system does not tell.
func describe(ctx context.Context, admin *kafka.Admin, memory *redis.Client) machine {
	m := machine{
		CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), Memory: field("/proc/meminfo", "MemTotal"),
		Kernel: strings.TrimSpace(read("/proc/sys/kernel/osrelease")), Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
		Commit: git(ctx, "rev-parse", "--short=12", "HEAD"),
	}
	if f := strings.Fields(read("/proc/loadavg")); len(f) > 2 {
		m.Load = strings.Join(f[:3], " ")
	}
	if git(ctx, "status", "--porcelain", "--untracked-files=no") != "" {
		m.Commit += " with changes"
	}
	if memory != nil {
		if info, err := memory.Info(ctx); err == nil {
			m.Redis = info.Version + ", append-only file " + map[string]string{"1": "on", "0": "off"}[info.AOF]
		}
	}
	if info, err := admin.Cluster(ctx); err == nil {
		m.Kafka = fmt.Sprintf("%s, %d broker", info.Version, len(info.Brokers))
	}
	return m
}

func read(path string) string {
	b, _ := os.ReadFile(path) // what cannot be read is left out of the report
	return string(b)
}

func field(path, name string) string {
	for line := range strings.Lines(read(path)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func git(ctx context.Context, args ...string) string {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// tick is the unit of /proc's times: 10 ms on every Linux that Go runs on.
const tick = 0.01

// cpuOf is the CPU time of a process in seconds; 0 if it cannot be read.
func cpuOf(pid int) float64 {
	text := read(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(text, ") ") // the name in brackets may hold blanks
	f := strings.Fields(rest)
	if !ok || len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) * tick
}

// busy is the time that all cores together have worked, in seconds.
func busy() float64 {
	f := strings.Fields(field0(read("/proc/stat")))
	sum := 0.0
	for i, v := range f {
		if i == 0 || i == 4 || i == 5 || i > 8 { // name, idle, waiting for disks; guests are in the rest already
			continue
		}
		n, _ := strconv.ParseFloat(v, 64)
		sum += n
	}
	return sum * tick
}

func field0(text string) string { line, _, _ := strings.Cut(text, "\n"); return line }

// listenerOf finds the process that listens on a loopback port; 0 if it is not
// to be found (another host, another user's process).
func listenerOf(addr string) int {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return 0
	}
	socket := ""
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		for line := range strings.Lines(read(table)) {
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", n)) {
				socket = "socket:[" + f[9] + "]"
			}
		}
	}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && to == socket {
			pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
			return pid
		}
	}
	return 0
}

//go:build race

package ratelimit

const underRace = true

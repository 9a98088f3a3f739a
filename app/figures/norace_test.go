//go:build !race

package figures_test

const underRace = false

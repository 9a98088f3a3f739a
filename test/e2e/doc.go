// Package e2e runs Tidegate as its users do: separate processes of the built
// binary on real Apache Kafka, Redis and PostgreSQL, with the simulated WeChat
// as the outside world. What was lost, doubled or disordered is computed by
// the simulator's judge from its own journal, never from our metrics.
//
// The tests carry the build tag e2e and need the addresses that
// `deployments/dev/engines env` prints.
package e2e

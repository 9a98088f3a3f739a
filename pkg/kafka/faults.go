package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/IBM/sarama"
	"github.com/eapache/go-resiliency/breaker" // the error that sarama's producer answers while a leader is away

	"tidegate/pkg/fault"
)

// produceFault gives a produce failure the kind from which callers decide:
// Invalid – this record can never be written, dead-letter it; Denied – the
// login lacks a right; Unavailable – it was certainly not written; Ambiguous –
// the connection broke or a time ran out after it was sent, so it may be in the
// log (a resend is then a second record; consumers recognise it by identity).
func produceFault(topic string, err error) error {
	op := "publish to " + topic
	var conf sarama.ConfigurationError
	var enc sarama.PacketEncodingError
	switch {
	case errors.As(err, &conf), errors.As(err, &enc), isAny(err, sarama.ErrMessageSizeTooLarge,
		sarama.ErrInvalidMessageSize, sarama.ErrInvalidRecord, sarama.ErrInvalidTimestamp, sarama.ErrInvalidTopic):
		return fault.New(fault.Invalid, op, "the record can never be written: %w", err)
	case isAny(err, sarama.ErrUnknownTopicOrPartition):
		return fault.New(fault.Unavailable, op, "the topic does not exist, create it first: %w", err)
	case isDenied(err):
		return fault.New(fault.Denied, op, "the login may not write here, check user and ACL: %w", err)
	case isAny(err, sarama.ErrOutOfBrokers, sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition,
		sarama.ErrNotEnoughReplicas, sarama.ErrShuttingDown, sarama.ErrClosedClient,
		sarama.ErrProducerRetryBufferOverflow, sarama.ErrKafkaStorageError, breaker.ErrBreakerOpen, errClosed):
		return fault.Wrap(fault.Unavailable, op, err)
	}
	return fault.Wrap(fault.Ambiguous, op, err)
}

// adminFault classifies what a question to the cluster may answer.
func adminFault(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Unavailable, op, fmt.Errorf("no answer in time: %w", err))
	case isDenied(err):
		return fault.New(fault.Denied, op, "the login may not do this, check user and ACL: %w", err)
	case isAny(err, sarama.ErrUnknownTopicOrPartition):
		return fault.Wrap(fault.NotFound, op, err)
	case isAny(err, sarama.ErrInvalidTopic, sarama.ErrInvalidPartitions, sarama.ErrInvalidReplicationFactor,
		sarama.ErrInvalidConfig, sarama.ErrPolicyViolation, sarama.ErrInvalidReplicaAssignment):
		return fault.Wrap(fault.Invalid, op, err)
	}
	if errors.Is(err, io.EOF) { // how brokers refuse a wrong protocol, and some a wrong login
		return fault.New(fault.Unavailable, op, "the broker hung up, check that tls and sasl match its listener: %w", err)
	}
	return fault.Wrap(fault.Unavailable, op, err)
}

func isDenied(err error) bool {
	return isAny(err, sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed,
		sarama.ErrGroupAuthorizationFailed, sarama.ErrSASLAuthenticationFailed,
		sarama.ErrTransactionalIDAuthorizationFailed)
}

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

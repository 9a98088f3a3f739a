package fault_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/fault"
)

func TestKindSurvivesWrapping(t *testing.T) {
	inner := fault.New(fault.Limited, "take permit", "rate reached: %w", io.EOF).WithRetryAfter(time.Second)
	outer := fmt.Errorf("send push 7: %w", inner)
	require.Equal(t, fault.Limited, fault.KindOf(outer))
	require.Equal(t, time.Second, fault.RetryAfter(outer))
	require.ErrorIs(t, outer, io.EOF)
	require.Equal(t, "send push 7: take permit: rate reached: EOF", outer.Error())
}

func TestOutermostKindWins(t *testing.T) {
	err := fault.Wrap(fault.Final, "deliver", fault.New(fault.Unavailable, "dial", "refused"))
	require.Equal(t, fault.Final, fault.KindOf(err))
}

func TestUnclassifiedIsInternal(t *testing.T) {
	require.Equal(t, fault.Internal, fault.KindOf(errors.New("x")))
	require.Equal(t, "internal", fault.Kind(200).String())
	require.NoError(t, fault.Wrap(fault.Final, "x", nil))
}

func TestFieldIsNamed(t *testing.T) {
	err := fault.New(fault.Invalid, "read push", "openid is empty").WithField("openid")
	require.Equal(t, "openid", fault.FieldOf(err))
}

package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wire"
)

// The names are in use on clusters: a group that is renamed reads everything
// again.
func TestGroupNamesAreFixed(t *testing.T) {
	topics := wire.Topics{Prefix: "tidegate"}
	require.Equal(t, "tidegate.robot.card", wire.RobotGroup("tidegate.robot", "card"))
	require.Equal(t, "tidegate.receipts-queued", wire.QueuedGroup("tidegate.receipts"))
	var groups, read []string
	for _, lane := range wire.Lanes() {
		groups = append(groups, topics.SenderGroup("card", lane))
		read = append(read, topics.Lane("card", lane))
	}
	require.Equal(t, []string{"tidegate.sender.card.replies", "tidegate.sender.card.realtime", "tidegate.sender.card.bulk"}, groups)
	require.Equal(t, []string{"tidegate.card.replies", "tidegate.card.pushes.realtime", "tidegate.card.pushes.bulk"}, read)
}

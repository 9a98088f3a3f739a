package robot_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidegate/robot"
	"tidegate/robot/backend"
)

func TestConfigIsChecked(t *testing.T) {
	require.NoError(t, robot.DefaultConfig().Validate())
	for want, change := range map[string]func(*robot.Config){
		"robot.group":                func(c *robot.Config) { c.Group = "" },
		"robot.workers":              func(c *robot.Config) { c.Workers = 0 },
		"robot.queue_high":           func(c *robot.Config) { c.QueueLow = c.QueueHigh },
		"robot.max_age":              func(c *robot.Config) { c.MaxAge = 0 },
		"robot.publish_timeout":      func(c *robot.Config) { c.PublishTimeout = 0 },
		"robot.overload.event":       func(c *robot.Config) { c.Overload.Event = time.Minute },
		"robot.overload.query":       func(c *robot.Config) { c.Overload.Query = 0 },
		"robot.overload.places":      func(c *robot.Config) { c.Overload.Places = -1 },
		"robot.overload.alarm_after": func(c *robot.Config) { c.Overload.AlarmAfter = 0 },
		"robot.recent":               func(c *robot.Config) { c.Recent = 0 },
		"entry 1 (x): base_url":      func(c *robot.Config) { c.Backends = []backend.Config{{Name: "x"}} },
		"the name \"x\" is there": func(c *robot.Config) {
			c.Backends = []backend.Config{{Name: "x", BaseURL: "http://x"}, {Name: "x", BaseURL: "http://y"}}
		},
	} {
		c := robot.DefaultConfig()
		change(&c)
		require.ErrorContains(t, c.Validate(), want)
		_, err := robot.New(c, nil, robot.Deps{})
		require.ErrorContains(t, err, want)
	}
	_, err := robot.New(robot.DefaultConfig(), nil, robot.Deps{})
	require.ErrorContains(t, err, "name a rules file")
}

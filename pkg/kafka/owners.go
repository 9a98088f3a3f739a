package kafka

import (
	"context"
	"errors"
	"strings"

	"github.com/IBM/sarama"
)

// Owners tells who holds what of one group: client id and host by topic and
// partition. A partition that nobody holds is missing.
type Owners map[string]map[int32]string

// Owners asks who reads. A group whose answer cannot be had is missing, and so is
// one that deals its partitions anew at this moment; one that nobody is in has no
// owners.
func (a *Admin) Owners(ctx context.Context, groups []string) (map[string]Owners, error) {
	if len(groups) == 0 {
		return nil, nil
	}
	out := map[string]Owners{}
	err := a.ask(ctx, "describe consumer groups", func(c *adminConn) error {
		found, err := c.admin.DescribeConsumerGroups(groups)
		if err != nil {
			return err
		}
		for _, g := range found {
			if o, ok := ownersOf(g); ok {
				out[g.GroupId] = o
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func ownersOf(g *sarama.GroupDescription) (Owners, bool) {
	o := Owners{}
	if errors.Is(g.Err, sarama.ErrGroupIDNotFound) {
		return o, true
	}
	if !errors.Is(g.Err, sarama.ErrNoError) || g.State == "PreparingRebalance" || g.State == "CompletingRebalance" {
		return nil, false
	}
	for _, m := range g.Members {
		has, err := m.GetMemberAssignment()
		if err != nil {
			return nil, false
		}
		if has == nil {
			continue
		}
		for topic, ps := range has.Topics {
			if o[topic] == nil {
				o[topic] = map[int32]string{}
			}
			for _, p := range ps {
				o[topic][p] = m.ClientId + " at " + strings.TrimPrefix(m.ClientHost, "/")
			}
		}
	}
	return o, true
}

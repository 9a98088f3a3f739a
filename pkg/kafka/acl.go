package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// Permit is one thing that a user of the cluster may do.
type Permit struct {
	Principal string // "User:tidegate-proxy"
	// Topic or Group names the resource; exactly one is set.
	Topic, Group string
	// Prefixed means every resource whose name begins so.
	Prefixed bool
	// Operation is "Read", "Write", "Describe", "Create" or "DescribeConfigs".
	// Read and Write include Describe.
	Operation string
}

// String is the line that Kafka's own tool takes, after its --bootstrap-server.
func (p Permit) String() string {
	kind, name := "topic", p.Topic
	if p.Group != "" {
		kind, name = "group", p.Group
	}
	pattern := "literal"
	if p.Prefixed {
		pattern = "prefixed"
	}
	return fmt.Sprintf("--add --allow-principal %s --operation %s --%s %s --resource-pattern-type %s", p.Principal, p.Operation, kind, name, pattern)
}

func (p Permit) creation() (*sarama.AclCreation, error) {
	r := sarama.Resource{ResourceType: sarama.AclResourceTopic, ResourceName: p.Topic, ResourcePatternType: sarama.AclPatternLiteral}
	if p.Group != "" {
		r.ResourceType, r.ResourceName = sarama.AclResourceGroup, p.Group
	}
	if p.Prefixed {
		r.ResourcePatternType = sarama.AclPatternPrefixed
	}
	var op sarama.AclOperation
	if err := op.UnmarshalText([]byte(p.Operation)); err != nil || op == sarama.AclOperationUnknown {
		return nil, fmt.Errorf("operation %q is not known", p.Operation)
	}
	return &sarama.AclCreation{Resource: r, Acl: sarama.Acl{Principal: p.Principal, Host: "*", Operation: op, PermissionType: sarama.AclPermissionAllow}}, nil
}

// Permit writes the permits into the cluster's access control list; those that
// are there stay. Whoever asks needs Alter on the cluster. sarama's own call
// does not look at what became of each, so the controller is asked here.
func (a *Admin) Permit(ctx context.Context, permits []Permit) error {
	req := &sarama.CreateAclsRequest{Version: 1}
	for _, p := range permits {
		c, err := p.creation()
		if err != nil {
			return adminFault("permit "+p.String(), err)
		}
		req.AclCreations = append(req.AclCreations, c)
	}
	return a.ask(ctx, "write access control list", func(c *adminConn) error {
		controller, err := c.client.RefreshController()
		if err != nil {
			return err
		}
		res, err := controller.CreateAcls(req)
		if err != nil {
			return err
		}
		if len(res.AclCreationResponses) != len(permits) {
			return fmt.Errorf("%d answers to %d permits", len(res.AclCreationResponses), len(permits))
		}
		for i, r := range res.AclCreationResponses {
			if !errors.Is(r.Err, sarama.ErrNoError) {
				text := ""
				if r.ErrMsg != nil {
					text = ": " + *r.ErrMsg
				}
				return fmt.Errorf("%s: %w%s", permits[i], r.Err, text)
			}
		}
		return nil
	})
}

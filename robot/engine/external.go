package engine

import (
	"fmt"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"tidegate/pkg/wire"
)

// external is the action of a rule that lets an engine outside decide.
type external struct {
	name    string
	stay    time.Duration // how long the engine may keep the follower; 0: not at all
	refusal []reply       // when the engine wants a person to take over
}

// Ask says which external engine decides, and what it is told beside the
// callback.
type Ask struct {
	Engine   string
	Rule     string
	Lang     string
	Vars     map[string]any
	Inside   bool // the engine kept the follower with its last answer
	MayStay  bool // it may keep the follower
	Fallback string
}

// What an external engine may do with the follower's next messages.
const (
	DialogueStay = "stay" // they come to this engine as well
	DialogueEnd  = "end"  // they are anybody's
)

// Said is what an external engine answered, checked by CheckContent.
type Said struct {
	Replies  []wire.Content
	HandOver bool              // it wants a person to take over
	Dialogue string            // stay, end, or "" to leave it as it is
	Vars     map[string]string // what it wants to be told with the next message
}

func (e *external) ask(d *Decision) *Ask {
	return &Ask{
		Engine: e.name, Rule: d.rule.name, Lang: d.data.Lang, Vars: d.data.Vars,
		Inside: d.was != nil && d.was.Rule == d.rule.name && !d.Moves, MayStay: e.stay > 0, Fallback: d.Fallback,
	}
}

// Take makes the replies of a decision with Ask set from the engine's answer,
// and moves the dialogue as it wants. An error is the engine's fault.
func (d *Decision) Take(s Said) error {
	if d.Ask == nil {
		return fmt.Errorf("take an answer: the decision asks no engine")
	}
	if len(s.Replies) > MaxReplies {
		return fmt.Errorf("it gives %d replies, WeChat takes %d", len(s.Replies), MaxReplies)
	}
	d.Replies = s.Replies
	if s.HandOver {
		// Only the acknowledgement can do it (D2), and that was hours ago in the
		// life of a callback: the follower is told how to get there.
		if err := d.render(d.rule.external.refusal); err != nil {
			return err
		}
		d.Replies = append(s.Replies, d.Replies...)
		d.Replies = d.Replies[:min(len(d.Replies), MaxReplies)]
		d.Notes = append(d.Notes, "the engine asked for a person")
		if len(d.Replies) == 0 {
			d.NotHere = "the engine asked for a person, who can be reached by a rule with hand_over only"
		}
		s.Dialogue = DialogueEnd
	}
	inside := d.Ask.Inside
	switch {
	case s.Dialogue == DialogueStay && d.rule.external.stay == 0:
		return fmt.Errorf("it wants to keep the follower, and the rule does not let it: give engine: stay in the rule")
	case s.Dialogue == DialogueStay, s.Dialogue == "" && inside:
		d.Moves, d.Trail = true, "the engine keeps the follower"
		if s.Vars == nil && inside {
			s.Vars = d.was.Vars
		}
		d.State = &State{Rule: d.rule.name, Shape: d.rule.shape(), Lang: d.data.Lang, Vars: s.Vars, At: d.data.at.UnixMilli()}
	case inside:
		d.Moves, d.State, d.Trail = true, nil, "the engine has ended the dialogue"
	}
	return nil
}

// engine reads the action of that name: a name, or the long form.
func (r *reader) engine(n *yaml.Node, u *rule, of string, known Known) {
	u.external = &external{}
	at := n
	if n.Kind == yaml.MappingNode {
		f := r.mapping(n, of+"engine", "name", "stay", "hand_over")
		if at = f["name"]; at == nil {
			r.fail(n, "%sengine: name is missing: name one of the configured engines (%s)", of, listOr(known.Engines, "robot.engines"))
			return
		}
		if s := f["stay"]; s != nil {
			u.external.stay = r.duration(s, of+"engine: stay", minTimeout, maxTimeout)
		}
		if h := f["hand_over"]; h != nil {
			u.external.refusal = r.replies(h, of+"engine: hand_over", scope{})
		}
	}
	name, _ := r.text(at, of+"engine")
	u.external.name = name
	switch {
	case !backendName.MatchString(name):
		r.fail(at, "%sengine: use a name, not an address; addresses belong to the configuration (robot.engines)", of)
	case known.Engines != nil && !contains(known.Engines, name):
		r.fail(at, "%sengine: there is no engine %q: configured are %s", of, name, listOr(known.Engines, "none"))
	}
}

// Engines lists the names of the external engines that rules ask.
func (r *Rules) Engines() []string {
	return r.names(func(u *rule) string {
		if u.external == nil {
			return ""
		}
		return u.external.name
	})
}

// CheckContent makes a reply from outside fit for a follower, or says what is
// wrong with it: the bounds are those of a rule's own replies, and no text can
// bring an anchor.
func CheckContent(c *wire.Content) error {
	set := count(c.Text != "", c.MediaID != "", c.News != nil, c.Menu != nil)
	switch {
	case c.Type == "text" && set == 1 && c.Text != "":
		return cleanText(&c.Text, "text", true)
	case c.Type == "image" && set == 1 && validMediaID(c.MediaID):
		return nil
	case c.Type == "news" && set == 1 && c.News != nil:
		return cleanNews(c.News)
	case c.Type == "msgmenu" && set == 1 && c.Menu != nil:
		return cleanMenu(c.Menu)
	}
	return fmt.Errorf("it is not exactly one of text, image (a media_id), news and menu")
}

func cleanText(s *string, what string, needed bool) error {
	clean, err := escapeText(*s)
	if err != nil {
		return err
	}
	if *s = clean; needed && strings.TrimSpace(clean) == "" {
		return fmt.Errorf("%s is empty", what)
	}
	if len(clean) > MaxText {
		return fmt.Errorf("%s has %d bytes, WeChat takes %d", what, len(clean), MaxText)
	}
	return nil
}

func cleanNews(a *wire.Article) error {
	if err := cleanText(&a.Title, "news: title", true); err != nil {
		return err
	}
	if err := cleanText(&a.Description, "news: description", false); err != nil {
		return err
	}
	if err := checkLink(a.URL); err != nil {
		return fmt.Errorf("news: url: %w", err)
	}
	if a.PicURL == "" {
		return nil
	}
	if err := checkLink(a.PicURL); err != nil {
		return fmt.Errorf("news: pic_url: %w", err)
	}
	return nil
}

func cleanMenu(m *wire.Menu) error {
	if err := cleanText(&m.Head, "menu: head", false); err != nil {
		return err
	}
	if err := cleanText(&m.Tail, "menu: tail", false); err != nil {
		return err
	}
	if len(m.Items) == 0 || len(m.Items) > maxMenuItems {
		return fmt.Errorf("menu: items: give 1 to %d", maxMenuItems)
	}
	seen := map[string]bool{}
	for i := range m.Items {
		item := &m.Items[i]
		if !menuItemID.MatchString(item.ID) || seen[item.ID] {
			return fmt.Errorf("menu: items: item %d: give each an id of its own of up to 64 letters, digits, _ and -", i+1)
		}
		seen[item.ID] = true
		if err := cleanText(&item.Text, fmt.Sprintf("menu: items: item %d: text", i+1), true); err != nil {
			return err
		}
	}
	return nil
}

package client

// Content is what a customer-service message says: exactly the field that Type
// names is given.
type Content struct {
	Type    string   `json:"type"` // text, image, voice, video, music, news or msgmenu
	Text    string   `json:"text,omitempty"`
	MediaID string   `json:"media_id,omitempty"` // image, voice
	Video   *Video   `json:"video,omitempty"`
	Music   *Music   `json:"music,omitempty"`
	News    *Article `json:"news,omitempty"`
	Menu    *Menu    `json:"menu,omitempty"` // of type msgmenu
}

// Text is the content of a text message.
func Text(s string) *Content { return &Content{Type: "text", Text: s} }

// Video is an uploaded video.
type Video struct {
	MediaID     string `json:"media_id"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
}

// Music is a piece of music to play from an address.
type Music struct {
	Title        string `json:"title,omitempty"`
	Description  string `json:"description,omitempty"`
	URL          string `json:"url"`
	HQURL        string `json:"hq_url,omitempty"`
	ThumbMediaID string `json:"thumb_media_id"`
}

// Article is the one item of a news message.
type Article struct {
	Title       string `json:"title"`
	Description string `json:"description,omitempty"`
	URL         string `json:"url,omitempty"`
	PicURL      string `json:"pic_url,omitempty"`
}

// Menu is a message with items to press.
type Menu struct {
	Head  string     `json:"head,omitempty"`
	Items []MenuItem `json:"items"`
	Tail  string     `json:"tail,omitempty"`
}

// MenuItem is one line of a Menu.
type MenuItem struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

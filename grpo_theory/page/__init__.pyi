from .advice.screen import Answer as Answer
from .advice.screen import answer as answer
from .advice.screen import to_dict as to_dict
from .advice.screen import to_html as to_html
from .advice.screen import to_json as to_json
from .advice.screen import to_text as to_text
